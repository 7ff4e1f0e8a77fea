"""The Prefect flows: thin decorators around the steps, and the only module that imports the orchestrator.

Tasks exchange the run's path, bucket numbers and counts.  No id and no value is in a parameter, a log line, an
exception, an artefact or a result; results are not persisted.  Flows of deployments take paths and names of files.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

from prefect import Task, flow, task, unmapped
from prefect.artifacts import create_markdown_artifact, create_progress_artifact, update_progress_artifact
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.futures import PrefectFuture, as_completed
from prefect.task_runners import TaskRunner, ThreadPoolTaskRunner
from prefect.tasks import exponential_backoff

from flows.device import checked_device
from flows.errors import FlowError, PartlyDone, StepFailed, TransientFault, data_free
from flows.progress import current_progress
from flows.run.layout import RunLayout
from flows.settings import Settings
from flows.steps import cohort, evaluate, recall, report, stream, summarise, wards
from flows.steps.opened import opened_manifest, opened_settings


PARTS = ("cohort", "evaluate", "stream", "report")
DEVICE_SLOTS = "icu-device-memory"

_FLOW: dict[str, Any] = {"persist_result": False, "validate_parameters": False, "log_prints": False}
_SHOWN_EVERY = 2.0  # seconds between two updates of a progress artefact


def _is_transient(_task: Task[..., Any], _run: TaskRun, state: State[Any]) -> bool:
    return isinstance(state.result(raise_on_failure=False), TransientFault)


_OPTIONS: dict[str, Any] = {
    "persist_result": False,
    "cache_policy": NO_CACHE,
    "retries": 3,
    "retry_delay_seconds": exponential_backoff(backoff_factor=1),
    "retry_condition_fn": _is_transient,
    "log_prints": False,
}


def _guarded(step: str, action: Callable[..., Any], run: str, *arguments: Any) -> Any:
    """Call a step; what it raises crosses the task border as a short error without data and without a cause."""
    try:
        layout = RunLayout(Path(run))
        return action(layout, opened_settings(layout), *arguments)
    except Exception as failure:
        told = data_free(failure, step)
    raise told


@task(name="cohort", **_OPTIONS)
def cohort_task(run: str) -> list[int]:
    """Build the cohort; returns the numbers of the buckets that hold stays."""
    buckets: list[int] = _guarded("cohort", cohort.build, run)
    return buckets


@task(name="evaluate", **_OPTIONS)
def evaluate_task(run: str, bucket: int) -> int:
    """Measure one bucket of patients; returns its number of stay-hours."""
    hours: int = _guarded(f"evaluate bucket {bucket}", evaluate.measure_bucket, run, bucket)
    return hours


@task(name="prepare", **_OPTIONS)
def prepare_task(run: str) -> None:
    """Fit what the streaming of all buckets shares."""
    _guarded("prepare", stream.prepare, run)


@task(name="stream", **_OPTIONS)
def stream_task(run: str, bucket: int) -> int:
    """Stream one bucket of patients through their memories; returns its number of stay-hours."""
    hours: int = _guarded(f"stream bucket {bucket}", stream.stream_bucket, run, bucket)
    return hours


@task(name="ward", **_OPTIONS)
def ward_task(run: str, ward: int) -> int:
    """Build one ward, a memory that patients share; returns its number of stay-hours."""
    hours: int = _guarded(f"ward {ward}", wards.make_ward, run, ward)
    return hours


@task(name="recall-features", **_OPTIONS)
def prepare_recall_task(run: str) -> None:
    """Fit what the recall of all buckets shares."""
    _guarded("recall", recall.prepare_recall, run)


@task(name="recall", **_OPTIONS)
def recall_task(run: str, bucket: int) -> int:
    """Measure what memories read back of one bucket's event hours; returns its number of stay-hours."""
    hours: int = _guarded(f"recall bucket {bucket}", recall.recall_bucket, run, bucket)
    return hours


@task(name="summarise", **_OPTIONS)
def summarise_task(run: str) -> None:
    """Put the buckets together into the result tables."""
    _guarded("evaluate", summarise.summarise, run)


@task(name="report", **_OPTIONS)
def report_task(run: str) -> None:
    """Render the report."""
    _guarded("report", report.render, run)


@flow(name="steps", **_FLOW)
def study(run: str, parts: Sequence[str] = PARTS) -> None:
    """The parts of a study, cohort to report, bucket by bucket, for a run directory whose manifest is in place.

    What is finished is not done again, whichever parts are named.
    """
    settings = opened_settings(RunLayout(Path(run)))
    buckets = cohort_task(run)
    if "evaluate" in parts:
        _each_bucket("evaluate", evaluate_task, run, buckets)
    if "stream" in parts:
        _stream(run, settings, buckets)
    if "evaluate" in parts:
        if settings.recall_events:
            prepare_recall_task(run)
            _each_bucket("recall", recall_task, run, buckets)
        summarise_task(run)
    if "report" in parts:
        report_task(run)


def _stream(run: str, settings: Settings, buckets: Sequence[int]) -> None:
    """Every memory of a study; on a device, as many at a time as the slots for its memory allow."""
    tags = [DEVICE_SLOTS] if checked_device(settings.device) == "cuda" else []
    if settings.memories:
        prepare_task(run)
        _each_bucket("stream", stream_task.with_options(tags=tags), run, buckets)
    if numbers := wards.ward_numbers(settings):
        _each_bucket("wards", ward_task.with_options(tags=tags), run, numbers)


def run_study(layout: RunLayout, settings: Settings, parts: Sequence[str] = PARTS) -> None:
    """Run the flow against the configured server, or the temporary one that the orchestrator starts by itself."""
    study.with_options(task_runner=_runner(settings))(str(layout.root), list(parts))


def _runner(settings: Settings) -> TaskRunner[PrefectFuture[Any]]:
    """Threads of this process, or the processes of a Dask cluster, local or named; results do not depend on it."""
    workers = settings.workers or os.cpu_count() or 1
    if settings.runner == "threads":
        # Its futures are narrower than the parameter says, and the class is invariant in them.
        return cast("TaskRunner[PrefectFuture[Any]]", ThreadPoolTaskRunner(max_workers=workers))
    try:
        from prefect_dask.task_runners import DaskTaskRunner  # noqa: PLC0415 (an extra)
    except ImportError:
        raise FlowError("runner dask: prefect-dask is not installed; install the extra `dask` or use threads") from None
    if settings.dask_address is not None:
        return cast("TaskRunner[PrefectFuture[Any]]", DaskTaskRunner(address=settings.dask_address))
    cluster = {"n_workers": workers, "threads_per_worker": 1, "dashboard_address": None}
    return cast("TaskRunner[PrefectFuture[Any]]", DaskTaskRunner(cluster_kwargs=cluster))


def _each_bucket(step: str, work: Task[..., int], run: str, buckets: Sequence[int]) -> None:
    """Map a task over the buckets; a failed bucket is named by number and the others are finished first."""
    layout = RunLayout(Path(run))
    timed = work.with_options(timeout_seconds=opened_settings(layout).task_timeout)
    futures = dict(zip(timed.map(unmapped(run), list(buckets)), buckets, strict=True))
    total = opened_manifest(layout).steps["cohort"]["tokens"]
    shown = _Shown(step, len(futures))
    failures: dict[int, FlowError] = {}
    hours = 0
    for future in as_completed(list(futures)):
        outcome = _outcome(future)
        if isinstance(outcome, FlowError):
            failures[futures[future]] = outcome
        else:
            hours += outcome
            current_progress().update(step, hours, total, "hours")
            shown.one_more()
    if not failures:
        return
    first = failures[min(failures)]
    if len(failures) == len(futures):
        raise type(first)(str(first))
    listed = ", ".join(str(number) for number in sorted(failures))
    kept = len(futures) - len(failures)
    raise PartlyDone(f"{step}: bucket {listed} failed and {kept} are finished; run the same command again ({first})")


class _Shown:
    """A progress artefact of one step, in the share of its buckets that are finished."""

    def __init__(self, step: str, buckets: int) -> None:
        self._buckets, self._done, self._told = buckets, 0, time.monotonic()
        self._artefact = create_progress_artifact(0.0, key=f"{step}-progress", description=f"{step}: buckets finished")

    def one_more(self) -> None:
        """Count a finished bucket; the server is told every other second and at the end."""
        self._done += 1
        now = time.monotonic()
        if self._done == self._buckets or now - self._told >= _SHOWN_EVERY:
            self._told = now
            update_progress_artifact(self._artefact, 100.0 * self._done / self._buckets)


def _outcome(future: PrefectFuture[int]) -> int | FlowError:
    outcome: object = future.result(raise_on_failure=False)
    if isinstance(outcome, int | FlowError):
        return outcome
    return StepFailed(f"a task ended as {type(outcome).__name__}; run the same command again")

"""The Prefect flows: thin decorators around the steps, and the only module that imports the orchestrator.

Tasks exchange the run's path, bucket numbers and counts.  No id and no value is in a parameter, a log line, an
exception, an artefact or a result; results are not persisted.  Flows of deployments take paths and names of files.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast
from uuid import UUID

from prefect import Task, flow, runtime, task, unmapped
from prefect.artifacts import create_markdown_artifact, create_progress_artifact, update_progress_artifact
from prefect.cache_policies import NO_CACHE
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.client.schemas.objects import FlowRun, State, TaskRun, WorkerStatus
from prefect.deployments import run_deployment
from prefect.exceptions import ObjectAlreadyExists, ObjectNotFound
from prefect.futures import PrefectFuture, as_completed
from prefect.states import Cancelled
from prefect.task_runners import TaskRunner, ThreadPoolTaskRunner
from prefect.tasks import exponential_backoff
from prefect.workers.process import ProcessWorker

from flows import deployed
from flows.device import checked_device
from flows.errors import FlowError, PartlyDone, StepFailed, TransientFault, data_free
from flows.progress import current_progress
from flows.run.layout import RunLayout
from flows.settings import Settings, load_settings
from flows.steps import cohort, evaluate, recall, report, stream, summarise, wards
from flows.steps.opened import opened_manifest, opened_settings
from flows.study import run_study as study_of

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
        self._artefact = cast(
            "UUID", create_progress_artifact(0.0, key=f"{step}-progress", description=f"{step}: buckets finished")
        )

    def one_more(self) -> None:
        """Count a finished bucket; the server is told every other second and at the end."""
        self._done += 1
        now = time.monotonic()
        if self._done == self._buckets or now - self._told >= _SHOWN_EVERY:
            self._told = now
            with suppress(Exception):  # a server that is away for a moment costs a picture, not a study
                update_progress_artifact(self._artefact, 100.0 * self._done / self._buckets)


def _outcome(future: PrefectFuture[int]) -> int | FlowError:
    outcome: object = future.result(raise_on_failure=False)
    if isinstance(outcome, int | FlowError):
        return outcome
    if isinstance(outcome, TimeoutError):
        return StepFailed("it took longer than the setting task_timeout allows")
    return StepFailed(f"a task ended as {type(outcome).__name__}; run the same command again")


# ---- deployments: what prefect.yaml names ----


@flow(name="study", **_FLOW)
def deployed_study(source: str, run: str, settings: str | None = None) -> None:
    """A whole study, or what is left of it; SOURCE, RUN and the settings are paths, as on the command line."""
    with _told("study"):
        chosen = deployed.named_settings(settings)
        if chosen.memories and _device_worker_is_up():
            deployed.build_cohort_only(source, run, chosen, run_study)
            _sent_to_device("stream/stream-gpu", run=run, settings=settings)
        outcome = study_of(source, Path(run), chosen)
        _told_where(outcome.report)


@flow(name="cohort", **_FLOW)
def deployed_cohort(source: str, run: str, settings: str | None = None) -> None:
    """Begin a run and build its cohort."""
    with _told("cohort"):
        deployed.build_cohort_only(source, run, deployed.named_settings(settings), run_study)


@flow(name="stream", **_FLOW)
def deployed_stream(run: str, settings: str | None = None) -> None:
    """Stream a run whose cohort is built, on a worker with a device where one is up and in place otherwise."""
    with _told("stream"):
        chosen = deployed.named_settings(settings)
        if _is_sent() or not _sent_to_device("stream/stream-gpu", run=run, settings=settings):
            deployed.work_on(run, "stream", chosen, run_study)


@flow(name="evaluate", **_FLOW)
def deployed_evaluate(run: str, settings: str | None = None) -> None:
    """Measure a streamed run and publish its tables."""
    with _told("evaluate"):
        deployed.work_on(run, "evaluate", deployed.named_settings(settings), run_study)


@flow(name="report", **_FLOW)
def deployed_report(run: str, settings: str | None = None) -> None:
    """Render the report of an evaluated run."""
    with _told("report"):
        _told_where(deployed.render(run, deployed.named_settings(settings)))


@flow(name="forget", **_FLOW)
def deployed_forget(request: str, settings: str | None = None) -> None:
    """Carry out a request, named by its file or by its opaque id once received, in every registered run."""
    with _told("forget"):
        chosen = deployed.named_settings(settings)
        if _is_sent() or not _sent_to_device("forget/forget-gpu", request=request, settings=settings):
            receipts = deployed.forget(request, chosen)
            create_markdown_artifact(f"Carried out: {receipts} receipts.", key="forget")


@flow(name="verify", **_FLOW)
def deployed_verify(
    target: str, public_key: str | None = None, since: str | None = None, settings: str | None = None
) -> None:
    """Check the receipts of a run, or one receipt; a run that ends as Failed names the first mismatch."""
    with _told("verify"):
        receipts = deployed.verify_target(
            target, public_key, since, load_settings(Path(settings) if settings else None)
        )
        create_markdown_artifact(f"Verified: {receipts} receipts of `{target}`.", key="verify")


@contextmanager
def _told(step: str) -> Iterator[None]:
    """What a deployment run raises is stored by the server: one line without data and without a cause."""
    try:
        yield
        return
    except Exception as failure:
        told = data_free(failure, step)
    raise told


def _told_where(report: Path) -> None:
    """The report's path as an artefact; the report itself stays where it is."""
    create_markdown_artifact(f"The report is at `{report}` on the machine of the run.", key="report")


CPU_POOL, DEVICE_POOL = "icu-cpu", "icu-gpu"
_POOLS = {CPU_POOL: 4, DEVICE_POOL: 1}  # runs at a time
_QUEUES = {CPU_POOL: {"deletions": 1, "studies": 2}, DEVICE_POOL: {"deletions": 1, "studies": 1}}
_SLOTS = 2  # buckets at a time in the memory of a device
_POLL = 2.0  # seconds between two looks at a run that was sent to another worker


def make_pools() -> None:
    """Make the work pools, their queues and the slots for device memory, or bring their limits up to date."""
    with get_client(sync_client=True) as client:
        for pool, limit in _POOLS.items():
            client.create_work_pool(
                WorkPoolCreate(
                    name=pool,
                    type="process",
                    base_job_template=ProcessWorker.get_default_base_job_template(),
                    concurrency_limit=limit,
                ),
                overwrite=True,
            )
            for priority, (queue, runs) in enumerate(_QUEUES[pool].items(), start=1):
                with suppress(ObjectAlreadyExists):
                    client.create_work_queue(queue, work_pool_name=pool, concurrency_limit=runs, priority=priority)
        client.create_concurrency_limit(tag=DEVICE_SLOTS, concurrency_limit=_SLOTS)


def _device_worker_is_up() -> bool:
    """Whether a worker of the device pool has lately been heard of."""
    with get_client(sync_client=True) as client:
        try:
            workers = client.read_workers_for_work_pool(DEVICE_POOL)
        except ObjectNotFound:
            return False
    return any(worker.status == WorkerStatus.ONLINE for worker in workers)


def _is_sent() -> bool:
    """Whether this run is one that was sent to the device pool."""
    return str(runtime.deployment.name).endswith("-gpu")


def _sent_to_device(name: str, **parameters: Any) -> bool:
    """Have a deployment of the device pool do the work and wait for it; False where no worker takes it.

    Raises PartlyDone where the run that was sent did not complete.
    """
    if not _device_worker_is_up():
        return False
    sent = cast("FlowRun", run_deployment(name, parameters=parameters, timeout=0, as_subflow=False)).id
    with get_client(sync_client=True) as client:
        while not (state := client.read_flow_run(sent).state) or not state.is_final():
            if not (state and (state.is_running() or state.is_cancelling())) and not _device_worker_is_up():
                client.set_flow_run_state(sent, Cancelled(message="no worker took it"), force=True)
                return False
            time.sleep(_POLL)
    if not state.is_completed():
        raise PartlyDone(f"{name}: ended as {state.name} on {DEVICE_POOL}; run the same deployment again")
    return True

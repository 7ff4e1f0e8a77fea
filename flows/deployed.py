"""What deployment runs share: their settings from a named file, one part of an existing run under its lock."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from flows.errors import CannotDecide, FlowError
from flows.run.layout import RunLayout
from flows.run.locks import run_lock
from flows.run.manifest import step_is_done
from flows.run.registry import opened_site
from flows.run.requests import read_request
from flows.settings import Settings, load_settings
from flows.steps.forget.work import forget_waiting
from flows.steps.opened import opened_manifest, opened_settings
from flows.steps.preflight import locate_source, named_source, opened_run
from flows.steps.report import render_again
from flows.steps.site import refuse_suppressed, settled
from flows.steps.summarise import count_parts
from flows.steps.verify import settled_where_registered, trust, verify
from flows.steps.wards import ward_counts_path, ward_numbers

Parts = Callable[[RunLayout, Settings, tuple[str, ...]], None]


def named_settings(file: str | None) -> Settings:
    """The settings of a deployment run, from a TOML file and the worker's environment; deletions under way first."""
    return settled(load_settings(Path(file) if file else None))


def build_cohort_only(source: str | None, run: str, settings: Settings, work: Parts) -> None:
    """Begin a run and do its cohort with `work`; the other parts follow by their own deployments."""
    layout = absolute_run(run)
    with opened_run(layout, locate_source(named_source(source), layout, settings), settings) as pending:
        if pending:
            work(layout, settings, ("cohort",))
            refuse_suppressed(layout, settings.state)


def work_on(run: str, part: str, settings: Settings, work: Parts) -> None:
    """Do one part of a begun run with `work`, under the run's lock and with the run's own settings."""
    with held_run(run, settings) as layout:
        own = opened_settings(layout)
        refuse_unready(layout, own, part)
        work(layout, own, (part,))
        refuse_suppressed(layout, settings.state)


def render(run: str, settings: Settings) -> Path:
    """Render the report of a run whose other parts are finished, and clear its unpublished work; returns its path."""
    layout = absolute_run(run)
    report = render_again(layout.root, show_records=settings.show_records, state=settings.state)
    with run_lock(layout):
        shutil.rmtree(layout.generations, ignore_errors=True)
    return report


def absolute_run(run: str) -> RunLayout:
    """The layout of a run named by a path."""
    return RunLayout(Path(run).expanduser().absolute())


@contextmanager
def held_run(run: str, settings: Settings) -> Iterator[RunLayout]:
    """Hold the lock of a begun run; FlowError for one that was not begun, is in use or holds a suppressed patient."""
    layout = absolute_run(run)
    opened_manifest(layout)
    with run_lock(layout):
        refuse_suppressed(layout, settings.state)
        yield layout


def refuse_unready(layout: RunLayout, settings: Settings, part: str) -> None:
    """Raise FlowError where what a part is made from is not there, naming the deployment that makes it."""
    manifest = opened_manifest(layout)
    if not step_is_done(layout, manifest, "cohort"):
        raise FlowError(f"run {layout.root}: its cohort is not built; run the deployment cohort first")
    if part != "evaluate" or not settings.memories or step_is_done(layout, manifest, "evaluate"):
        return
    streamed = [count_parts(settings)["stream"](layout, bucket) for bucket in manifest.steps["cohort"]["buckets"]]
    waiting = [*streamed, *(ward_counts_path(layout, ward) for ward in ward_numbers(settings))]
    if missing := sum(not path.exists() for path in waiting):
        raise FlowError(
            f"run {layout.root}: {missing} of {len(waiting)} buckets and wards are not streamed; "
            "run the deployment stream first"
        )


def forget(request: str, settings: Settings) -> int:
    """Carry out a request in every registered run, as `icu-memory delete --all-runs` does; returns the receipts.

    ``request`` is the path of a request file, which is received first, or the opaque id of a request that was received.
    Raises FlowError where no state directory is named, and the refusals of a deletion.
    """
    file = Path(request).expanduser()
    if not file.is_file():
        return len(forget_waiting(request, settings))
    if settings.state is None:
        raise FlowError("forget: no state directory; set ICU_MEMORY_STATE for the worker or state in the settings file")
    asked = read_request(file)
    with opened_site(settings.state) as site:
        site.receive(asked)
    return len(forget_waiting(asked.request_id, settings))


def verify_target(target: str, public_key: str | None, since: str | None, settings: Settings) -> int:
    """Verify a run or a receipt as `icu-memory verify` does; returns the number of receipts.

    Raises FlowError with the first mismatch, CannotDecide where a key or file is missing or nobody vouched for a key.
    """
    chosen = settled_where_registered(settings)
    relied_on = trust(Path(public_key) if public_key else None, chosen.state, since)
    verified = verify(Path(target).expanduser().absolute(), relied_on, chosen.state)
    if not relied_on.keys:
        raise CannotDecide("verify: consistent, but signed by keys that nobody vouched for; name the public key")
    return len(verified.bundles)

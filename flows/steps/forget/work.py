"""A deletion from its requests to its receipts: what the command and the orchestrator's flow both call."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from flows.errors import CannotDecide, FlowError, UsageProblem
from flows.run.layout import RunLayout
from flows.run.locks import run_lock
from flows.run.registry import Site, opened_site
from flows.run.requests import Request, new_request, read_request
from flows.run.stores import store_kinds
from flows.settings import Settings
from flows.steps.forget.generation import make_generation, next_of
from flows.steps.forget.journal import BUILDING, Pass, RunPass, record
from flows.steps.forget.negative import Gone, refuse_remains
from flows.steps.forget.plan import Plan, make_plan
from flows.steps.forget.receipts import receipt_file, signing
from flows.steps.forget.recover import begin_annexes, drop_left_behind, finish, flushed, run_pass
from flows.steps.opened import opened_manifest, opened_settings
from flows.steps.site import run_identity, settled
from flows.steps.verify import cannot_decide


@dataclass(frozen=True)
class Options:
    """How far a deletion goes: all runs, wards measured against a refit, everything again from the source."""

    all_runs: bool = False
    audit: bool = False
    restandardise: bool = False


@dataclass(frozen=True)
class Deleted:
    """Receipts by file, whether anything was done now, the checkpoint line to keep elsewhere, runs not found."""

    receipts: tuple[Path, ...]
    fresh: bool
    checkpoint: str
    lost: tuple[Path, ...] = ()


def delete(run: Path, files: Sequence[Path], settings: Settings, options: Options | None = None) -> Deleted:
    """Carry out request files, or all received requests where none is named, on a run or on all of the site.

    Raises FlowError, and leaves runs and site as they were, for anything that is found before the intent.
    """
    requests = [read_request(file) for file in files]
    with _opened(settings) as site:
        return carry_out(
            site, RunLayout(run.expanduser().absolute()), requests or _received(site), options or Options()
        )


def delete_suppressed(run: Path, settings: Settings) -> Deleted:
    """Cure a run that still holds suppressed patients, such as a restored backup."""
    layout = RunLayout(run.expanduser().absolute())
    with _opened(settings) as site:
        requests = _restored(layout, site)
        if not requests:
            raise FlowError(f"run {layout.root}: holds no suppressed patient; nothing to do")
        return carry_out(site, layout, requests, Options())


def forget_waiting(request_id: str, settings: Settings) -> tuple[Path, ...]:
    """Carry out a request that the site has received, by its id alone, on every registered run; returns the receipts.

    One that is done already changes nothing.  Raises FlowError for an unknown one and for a site without runs.
    """
    with _opened(settings) as site:
        if site.request_state(request_id) == "done":
            given = (receipt_file(run.path, request_id) for run in site.runs())
            return tuple(file for file in given if file.exists())
        runs = [run.layout for run in site.runs() if run.path.exists()]
        if site.request_state(request_id) is None or not runs:
            raise FlowError("forget: the site has no such request or no run; run `icu-memory delete` with its file")
        return carry_out(site, runs[0], [site.take_inbox(request_id)], Options(all_runs=True)).receipts


def preview(run: Path, files: Sequence[Path], settings: Settings, options: Options | None = None) -> Plan:
    """The plan of a deletion; nothing is written but the registry where there was none."""
    layout = RunLayout(run.expanduser().absolute())
    with _opened(settings) as site, run_lock(layout):
        requests, chosen = [read_request(file) for file in files], options or Options()
        return make_plan(layout, requests, _inventory(site, layout), restandardise=chosen.restandardise)


def carry_out(site: Site, layout: RunLayout, requests: Sequence[Request], options: Options) -> Deleted:
    """As `delete`, for a site that is open and locked."""
    fresh = [request for request in requests if site.request_state(request.request_id) != "done"]
    if not requests:
        raise FlowError("delete: no request is waiting; name one with --request")
    with cannot_decide():
        signing(site)
    for request in requests:
        if request not in fresh:
            site.receive(request)  # refuses another request under the same id
    if not fresh:
        return Deleted(_given(layout, requests), False, "")
    layouts, lost = _layouts(site, layout, options)
    with _received_or_withdrawn(site, fresh, layouts):
        others = not options.all_runs and any(run.path != layout.root for run in site.runs())
        whole = Pass(
            tuple(request.request_id for request in fresh),
            tuple(_prepared(site, place, fresh, options) for place in layouts),
            others,
            bool(lost),
        )
        begin_annexes(site, fresh)
        record(site, whole)
    line = finish(site, whole)
    places = [receipt_file(place.root, request.request_id) for place in layouts for request in requests]
    return Deleted(tuple(place for place in places if place.exists()), True, line, lost)


@contextmanager
def _opened(settings: Settings) -> Iterator[Site]:
    if settings.state is None:
        raise UsageProblem("delete: no state directory; give --state-dir or set ICU_MEMORY_STATE")
    state = settings.state.expanduser().absolute()
    if not state.exists():
        raise CannotDecide(f"state directory {state}: is not there; make its key with `icu-memory keys new`")
    settled(settings)
    with opened_site(state) as site, site.lock():
        drop_left_behind(site)
        yield site


def _received(site: Site) -> list[Request]:
    return [site.take_inbox(name) for name, state in site.requests().items() if state == "received"]


def _given(layout: RunLayout, requests: Sequence[Request]) -> tuple[Path, ...]:
    files = tuple(receipt_file(layout.root, request.request_id) for request in requests)
    if missing := sum(not file.exists() for file in files):
        raise FlowError(
            f"run {layout.root}: {missing} of {len(files)} requests were carried out before, on another run; "
            "use --suppressed where this one still holds a patient"
        )
    return files


def _layouts(site: Site, layout: RunLayout, options: Options) -> tuple[list[RunLayout], tuple[Path, ...]]:
    """The runs of a pass, the named one first, and where registered ones were not found: their disk may be away."""
    opened_manifest(layout)
    _inventory(site, layout)
    rest = [run for run in site.runs() if run.path != layout.root] if options.all_runs else []
    found = [run.layout for run in rest if run.path.exists()]
    return [layout, *found], tuple(run.path for run in rest if not run.path.exists())


def _inventory(site: Site, layout: RunLayout) -> frozenset[str]:
    """What a run may hold; one that was not registered, such as a copy, is from here on."""
    run_id = _run_id(site, layout)
    return site.inventory(run_id)


def _run_id(site: Site, layout: RunLayout) -> str:
    known = {run.path: run.run_id for run in site.runs()}
    if layout.root in known:
        return known[layout.root]
    run_id = site.register_run(layout, run_identity(opened_manifest(layout).source))
    site.set_inventory(run_id, store_kinds(opened_settings(layout).memories))
    return run_id


@contextmanager
def _received_or_withdrawn(site: Site, requests: Sequence[Request], layouts: Sequence[RunLayout]) -> Iterator[None]:
    """Take requests in and note where generations are made; undone when the block ends without an intent."""
    new = [request.request_id for request in requests if site.request_state(request.request_id) is None]
    with ExitStack() as locks:
        for place in layouts:
            locks.enter_context(run_lock(place))
        try:
            for request in requests:
                site.receive(request)
                site.write_journal(request.request_id, BUILDING, {"runs": [str(place.root) for place in layouts]})
            yield
        except BaseException:
            for place in layouts:
                shutil.rmtree(next_of(place).root, ignore_errors=True)
            for request_id in new:
                (site.path / "annexes" / f"{request_id}.json").unlink(missing_ok=True)
                site.withdraw(request_id)
            raise


def _prepared(site: Site, layout: RunLayout, requests: Sequence[Request], options: Options) -> RunPass:
    """Make and verify the next generation of one run, flushed to disk."""
    plan = make_plan(layout, requests, _inventory(site, layout), restandardise=options.restandardise)
    digest, wards = make_generation(layout, plan, audit=options.audit)
    made = next_of(layout)
    refuse_remains(made, Gone(frozenset(plan.stays), frozenset(plan.subjects)))
    flushed(made)
    return run_pass(layout, _run_id(site, layout), digest, plan, wards)


def _restored(layout: RunLayout, site: Site) -> list[Request]:
    """Requests for the suppressed patients and stays that a run still holds."""
    frame = pl.read_parquet(layout.cohort / "stays.parquet", columns=["subject_id", "stay_id"])
    suppression = site.suppression()
    whole = suppression.subjects(frame["subject_id"].to_numpy())
    single = suppression.stays(frame["stay_id"].to_numpy()) & ~whole
    found = {"patient": frame["subject_id"].to_numpy()[whole], "stay": frame["stay_id"].to_numpy()[single]}
    facts = ("suppressed earlier, found in a restored or copied run", "data site", "suppression list")
    return [
        new_request(f"restored-{_word()}", facts[0], scope, ids.tolist(), facts[1], facts[2])
        for scope, ids in found.items()
        if len(ids)
    ]


def _word() -> str:
    """A random name of letters: digits could be an id."""
    return "".join(secrets.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(12))

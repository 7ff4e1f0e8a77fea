"""Forward from the intent: every step may be repeated, and the next command of any kind takes up what a crash left."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, replace
from pathlib import Path

from flows.environment import orchestrator_home
from flows.errors import FlowError
from flows.run.exchange import exchange, flush_tree, mend
from flows.run.layout import RunLayout
from flows.run.locks import run_lock
from flows.run.publish import sync_directory
from flows.run.registry import Site
from flows.run.requests import Request
from flows.settings import load_settings
from flows.steps.forget.generation import WardsDone, make_generation, moved_statistics, next_of, write_report_again
from flows.steps.forget.journal import BUILDING, STAGE, Pass, RunPass, recorded
from flows.steps.forget.negative import Gone, refuse_remains
from flows.steps.forget.plan import Plan, is_restandardised
from flows.steps.forget.receipts import append_intent, append_receipt, prepare_annex, signing
from flows.steps.verify import cannot_decide
from reports.receipts.state import state_digest


def complete_pending(site: Site) -> None:
    """Complete every deletion whose intent is recorded, and drop what others have left; called by every command.

    Raises FlowError where another process is deleting, CannotDecide where the signing key is gone.
    """
    if not site.pending():
        with suppress(FlowError), site.lock():  # another deletion is making what would be dropped
            drop_left_behind(site)
        return
    with site.lock():
        drop_left_behind(site)
        while pending := site.pending():
            finish(site, recorded(site, pending[0]))


def drop_left_behind(site: Site) -> None:
    """Remove generations that no intent stands for."""
    for request_id, state in site.requests().items():
        if state != "received":
            continue
        for entry in site.journal(request_id):
            if entry.stage == BUILDING:
                for path in entry.payload["runs"]:
                    shutil.rmtree(next_of(RunLayout(Path(path))).root, ignore_errors=True)
                site.write_journal(request_id, BUILDING, {"runs": []})


def finish(site: Site, whole: Pass) -> str:
    """Carry a recorded pass through to its receipts; returns the checkpoint line."""
    open_ids = [name for name in whole.request_ids if site.request_state(name) != "done"]
    requests = [site.take_inbox(name) for name in open_ids]
    line = ""
    with cannot_decide():
        signing(site)
        for done in whole.runs:
            whole, line = _finish_run(site, whole, done, requests)
    for request in requests:
        site.set_request_state(request.request_id, "done")
    return line


def _finish_run(site: Site, whole: Pass, done: RunPass, requests: Sequence[Request]) -> tuple[Pass, str]:
    layout, following = done.layout, next_of(done.layout)
    mend(layout.root, following.root)
    with ExitStack() as locks:
        for place in (layout, following):
            if place.root.is_dir():
                locks.enter_context(run_lock(place))
        if not _is_published(layout, done) and not _is_published(following, done):
            whole, done = _prepared_again(site, whole, done)
        for request in requests:
            append_intent(site, request, done)
            site.add_suppression(request.request_id, subject_ids=request.subject_ids, stay_ids=request.stay_ids)
        if not _is_published(layout, done):
            exchange(layout.root, following.root)
        for request in requests:
            site.set_request_state(request.request_id, "published")
        clean_up(layout)
        refuse_remains(layout, Gone(frozenset(done.stays), frozenset(done.subjects)))
        lines = [append_receipt(site, request, done, whole, load_settings().annex_days) for request in requests]
        write_report_again(layout)
    return whole, lines[-1]


def _prepared_again(site: Site, whole: Pass, done: RunPass) -> tuple[Pass, RunPass]:
    """Make a next generation that somebody removed once more, and have the journal lead to its digest."""
    layout = done.layout
    if not layout.state_manifest.is_file() and not layout.manifest.is_file():
        raise FlowError(f"run {layout.root}: was removed by somebody; restore it and run the same command again")
    plan = Plan(done.actions, done.stays, done.subjects, done.held)
    digest, wards = make_generation(layout, plan, audit=done.measured is not None)
    refuse_remains(next_of(layout), Gone(frozenset(done.stays), frozenset(done.subjects)))
    flushed(next_of(layout))
    again = run_pass(layout, done.run_id, digest, plan, wards)
    whole = replace(whole, runs=tuple(again if run.run_id == done.run_id else run for run in whole.runs))
    with site.transaction():
        for request_id in whole.request_ids:
            if site.request_state(request_id) != "done":
                site.write_journal(request_id, STAGE, asdict(whole))
    return whole, again


def run_pass(layout: RunLayout, run_id: str, digest: str, plan: Plan, wards: WardsDone) -> RunPass:
    """What the journal keeps of one run whose next generation is made."""
    again = is_restandardised(plan.actions) or not plan.changes
    return RunPass(
        run_id=run_id,
        path=str(layout.root),
        digest=digest,
        actions=plan.actions,
        held=plan.held,
        stays=plan.stays,
        subjects=plan.subjects,
        failures=dict(wards.failures),
        worst=wards.worst,
        measured=wards.measured,
        moved=0.0 if again else moved_statistics(layout, next_of(layout)),
    )


def clean_up(layout: RunLayout) -> None:
    """Remove the former generation, unpublished work with the database's temporaries, the orchestrator's storage."""
    for place in (
        next_of(layout).root,
        layout.generations,
        orchestrator_home(layout.data_root) / "storage",
    ):
        shutil.rmtree(place, ignore_errors=not place.exists())
    sync_directory(layout.root.parent)


def flushed(layout: RunLayout) -> None:
    """Flush a generation and its place to disk."""
    flush_tree(layout.root)
    sync_directory(layout.root.parent)


def begin_annexes(site: Site, requests: Sequence[Request]) -> None:
    """Fresh commitment keys, before anything is promised under them."""
    for request in requests:
        prepare_annex(site, request, load_settings().annex_days)


def _is_published(layout: RunLayout, done: RunPass) -> bool:
    """Whether a directory is the state that a pass leads to."""
    file = layout.state_manifest
    return file.is_file() and state_digest(file.read_bytes()) == done.digest

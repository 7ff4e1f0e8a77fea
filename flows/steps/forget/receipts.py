"""Entries of a deletion in the ledger: the intent before it, the receipt after it, and the annex that links them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from flows.run.manifest import package_versions
from flows.run.publish import write_atomic
from flows.run.registry import Site
from flows.run.requests import Request
from flows.settings import Settings
from flows.steps.forget.generation import TOLERANCE
from flows.steps.forget.journal import Pass, RunPass
from flows.steps.forget.plan import AFTER, AGAIN, FROZEN, is_restandardised
from flows.steps.memories import capacity
from flows.steps.opened import opened_settings
from flows.steps.verify import site_keys, site_ledger
from flows.steps.wards import WARDS, ward_capacity
from reports.receipts import vocabulary
from reports.receipts.annex import (
    annex_details,
    annex_document,
    commitment,
    new_commitment_key,
    read_subject_key,
    write_annex,
)
from reports.receipts.bundle import make_bundle
from reports.receipts.envelope import sign_envelope
from reports.receipts.keys import Signer
from reports.receipts.ledger import Ledger, read_entry
from reports.receipts.moment import moment
from reports.receipts.statement import (
    NO_CERTIFICATE,
    NOT_MEASURED,
    Action,
    IntentFacts,
    MemoryFacts,
    ReceiptFacts,
    RequestFacts,
    build_statement,
    decimal,
    signers,
    within,
)

_AT_TIMES = ("prediction models", "other runs", "lost runs", *FROZEN)  # not covered in some receipts only


def signing(site: Site) -> list[Signer]:
    """The keys that sign: the operator's and, where the site has one, the steward's; ReceiptMissing without one."""
    keys = site_keys(site.path)
    return [keys.signer("operator"), *([keys.signer("steward")] if keys.has("steward") else [])]


def prepare_annex(site: Site, request: Request, days: int) -> None:
    """Write the annex of a request with a fresh commitment key, to be destroyed after some days."""
    _write_annex(site, request.request_id, new_commitment_key(), days, {})


def append_intent(site: Site, request: Request, done: RunPass) -> None:
    """Put the intent into the ledger, synced, unless it is there for this state of the run."""
    ledger, keys = site_ledger(site.path), signing(site)
    if _index(ledger, request, done, "intent") is not None:
        return
    named = RequestFacts(**request.without_ids())
    facts = IntentFacts(done.digest, done.run_id, named, _commitment(site, request), moment(), signers(keys))
    ledger.append(sign_envelope(build_statement(facts, _ids(request)), keys), keys[0])


def append_receipt(site: Site, request: Request, done: RunPass, whole: Pass, days: int) -> str:
    """Put the receipt into the ledger unless it is there, its file into the run; returns the checkpoint line."""
    ledger, keys = site_ledger(site.path), signing(site)
    index = _index(ledger, request, done, "receipt")
    if index is None:
        _write_annex(site, request.request_id, _key(site, request), days, _with_details(site, request, done))
        entry = sign_envelope(build_statement(_facts(site, request, done, whole, keys), _ids(request)), keys)
        index = ledger.append(entry, keys[0]).index
    file = receipt_file(done.layout.root, request.request_id)
    write_atomic(file, make_bundle(ledger, index, site_keys(site.path).keys()))
    checkpoint = ledger.checkpoint()
    return checkpoint.line if checkpoint else ""


def receipt_file(run: Path, request_id: str) -> Path:
    """Where a run keeps the receipt of a request."""
    return run / "receipts" / f"{request_id}.json"


def _facts(site: Site, request: Request, done: RunPass, whole: Pass, keys: list[Signer]) -> ReceiptFacts:
    held = done.held[request.request_id]
    frozen = () if is_restandardised(done.actions) or not held else FROZEN
    not_covered = [name for name in vocabulary.NOT_COVERED if name not in _AT_TIMES]
    return ReceiptFacts(
        state_digest=done.digest,
        run_id=done.run_id,
        request=RequestFacts(**request.without_ids()),
        outcome="deleted" if held else "not held",
        commitment=_commitment(site, request),
        actions=_actions(done) if held else (),
        memories=_memories(done, opened_settings(done.layout)) if held else (),
        checks=tuple(vocabulary.CHECKS),
        not_covered=(*not_covered, *frozen, *_elsewhere(whole)),
        environment=package_versions(),
        completed_at=moment(),
        signers=signers(keys),
    )


def _elsewhere(whole: Pass) -> tuple[str, ...]:
    """What the pass did not reach of the site's other runs."""
    return (*(("other runs",) if whole.others else ()), *(("lost runs",) if whole.lost else ()))


def _actions(done: RunPass) -> tuple[Action, ...]:
    methods = {**done.actions, WARDS: "replay"} if done.failures else done.actions
    listed = tuple(Action(store, method) for store, method in methods.items())
    return (*listed, *(Action(store, "file removed") for store in AFTER))


def _memories(done: RunPass, settings: Settings) -> tuple[MemoryFacts, ...]:
    rows = []
    for kind in (name for name in vocabulary.MEMORIES if name in done.actions):
        if done.actions[kind] == AGAIN:
            rows.append(_built_again(kind, settings))
        elif kind == WARDS:
            failures, worst = dict(done.failures), within(done.worst, TOLERANCE)
            measured = NOT_MEASURED if done.measured is None else within(done.measured, TOLERANCE)
            attempted, reference = 1 + sum(failures.values()), "retained-key refit at the same C"
            path, cap = "maintained", decimal(ward_capacity(settings))
            if failures:  # a ward had to be fed again
                path, reference = "replay", "replay of the retained tokens"
            rows.append(
                MemoryFacts(kind, attempted, 1, failures, reference, path, cap, decimal(TOLERANCE), worst, measured)
            )
        else:
            cap = decimal(capacity(settings)) if kind == "svdd" else NO_CERTIFICATE
            reference = "a build that never saw the tokens"
            rows.append(MemoryFacts(kind, 1, 1, {}, reference, "none", cap, "0", NO_CERTIFICATE, NOT_MEASURED))
    return tuple(rows)


def _built_again(kind: str, settings: Settings) -> MemoryFacts:
    """Memories that were fed from nothing, from a source without the patient."""
    caps = {WARDS: ward_capacity(settings), "svdd": capacity(settings)}
    cap = decimal(caps[kind]) if kind in caps else NO_CERTIFICATE
    reference = "a build that never saw the tokens"
    return MemoryFacts(kind, 1, 1, {}, reference, "replay", cap, "0", NO_CERTIFICATE, NOT_MEASURED)


def _details(done: RunPass) -> dict[str, str]:
    """What the receipt may not say."""
    measured = NOT_MEASURED if done.measured is None else decimal(done.measured)
    return {
        "largest_change_of_frozen_statistics_in_sd": decimal(done.moved),
        "measured_discrepancy": measured,
        "stays": str(len(done.stays)),
        "worst_certificate": decimal(done.worst),
    }


def _with_details(site: Site, request: Request, done: RunPass) -> dict[str, dict[str, str]]:
    """The annex's sections, one a run, with that of this run."""
    written = annex_details(_annex_file(site, request.request_id).read_bytes())
    return {**written, done.run_id: _details(done)}


def _index(ledger: Ledger, request: Request, done: RunPass, kind: str) -> int | None:
    """Where the ledger has an entry of this kind about this state of the run."""
    found = ledger.find(request.request_id, done.run_id).get(kind)
    if found is None:
        return None
    facts = read_entry(ledger.entry(found.index), f"ledger {ledger.path}: entry {found.index:04d}")
    return found.index if facts.state_digest == done.digest else None


def _annex_file(site: Site, request_id: str) -> Path:
    return site.path / "annexes" / f"{request_id}.json"


def _write_annex(site: Site, request_id: str, key: bytes, days: int, details: dict[str, dict[str, str]]) -> None:
    until = datetime.now(UTC).date() + timedelta(days=days)
    write_annex(_annex_file(site, request_id), annex_document(request_id, key, until, details))


def _key(site: Site, request: Request) -> bytes:
    file = _annex_file(site, request.request_id)
    return read_subject_key(file.read_bytes(), f"annex {file.name}").key


def _commitment(site: Site, request: Request) -> str:
    return commitment(_key(site, request), request.subject_ids, request.stay_ids)


def _ids(request: Request) -> tuple[int, ...]:
    return (*request.subject_ids, *request.stay_ids)

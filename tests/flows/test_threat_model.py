"""Each row of the threat model against receipts, ledgers and runs that the whole pipeline made.

What does not hold is shown as well where it can be: a limit that nobody can reproduce is a guess.
"""

from __future__ import annotations

import base64
import hashlib
import html
import io
import itertools
import json
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from flows.cli import main
from flows.evidence_forget import asked, subjects_of_run
from flows.run.layout import RunLayout
from flows.run.registry import opened_site
from flows.run.requests import new_request, write_request
from flows.settings import Settings
from flows.steps.forget import work
from flows.steps.forget.generation import next_of, state_files
from flows.steps.forget.work import delete
from flows.steps.verify import site_keys, site_ledger, trust, verify
from reports.receipts.annex import commitment, subject_key_document
from reports.receipts.bundle import check_bundle, make_bundle, read_bundle
from reports.receipts.canonical import dumps
from reports.receipts.envelope import sign_envelope
from reports.receipts.errors import ReceiptError
from reports.receipts.keys import PublicKey
from reports.receipts.state import build_state, state_digest
from reports.receipts.statement import ReceiptFacts, build_statement, signers

Made = tuple[RunLayout, Settings]
Gone = tuple[RunLayout, Path, int]
Told = Callable[..., tuple[int, str]]
TIME = "2026-01-31T09:00:00Z"


@dataclass(frozen=True)
class Trace:
    """What the deletion of one patient left."""

    subject: int
    hours: int
    receipt: bytes
    entries: tuple[bytes, ...] = field(repr=False)
    before: str = field(repr=False)
    after: str = field(repr=False)
    files: dict[str, str] = field(repr=False)


@pytest.fixture(scope="module")
def traces(shared_deletable: Made, tmp_path_factory: pytest.TempPathFactory) -> dict[int, Trace]:
    """Every patient of the run deleted, each from the same run at the same place by the same request."""
    layout, settings = shared_deletable
    saved = tmp_path_factory.mktemp("saved") / "all"
    shutil.copytree(layout.root.parent, saved)
    made = {}
    for subject in subjects_of_run(layout):
        made[subject] = trace(layout, settings, subject)
        shutil.rmtree(layout.root.parent)
        shutil.copytree(saved, layout.root.parent)
    return made


def trace(layout: RunLayout, settings: Settings, subject: int) -> Trace:
    stays = pl.read_parquet(layout.cohort / "stays.parquet").filter(pl.col("subject_id") == subject)
    file, before = layout.root.parent / "request.json", layout.report.read_text()
    write_request(file, new_request("request-one", "consent", "patient", [subject], "patient", "steward", TIME))
    delete(layout.root, [file], settings)
    ledger = site_ledger(settings.state or layout.root)
    return Trace(
        subject=subject,
        hours=int(stays["hours"].sum()),
        receipt=receipt_of(layout).read_bytes(),
        entries=tuple(ledger.entry(index) for index in range(ledger.size)),
        before=before,
        after=layout.report.read_text(),
        files=state_files(layout),
    )


def receipt_of(layout: RunLayout) -> Path:
    return layout.receipts / "request-one.json"


@pytest.fixture
def gone(deletable: Made, tmp_path: Path) -> Gone:
    """A run after the deletion of a patient, its state directory and the patient."""
    layout, settings = deletable
    subject = subjects_of_run(layout)[0]
    shutil.copytree(layout.root, tmp_path / "backup")
    delete(layout.root, [asked(tmp_path, "request-one", subject)], settings)
    return layout, settings.state or tmp_path, subject


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Iterator[Told]:
    def run(*words: object) -> tuple[int, str]:
        capsys.readouterr()
        code = main([str(word) for word in words])
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return code, out + err

    return run


# --- outsider with a receipt ----------------------------------------------------------------------


def test_an_outsider_cannot_change_a_receipt_nor_sign_another(gone: Gone, tmp_path: Path) -> None:
    layout, state, _ = gone
    keys, receipt = site_keys(state).keys(), receipt_of(layout).read_bytes()
    assert not rejected(receipt, keys)
    for at in range(0, len(receipt), 61):
        assert rejected(receipt[:at] + bytes([receipt[at] ^ 1]) + receipt[at + 1 :], keys), at
    forged = signed_elsewhere(tmp_path / "own", receipt)
    assert not rejected(forged, site_keys(tmp_path / "own").keys())
    assert rejected(forged, keys)


def rejected(receipt: bytes, keys: Mapping[str, PublicKey]) -> bool:
    try:
        return bool(check_bundle(read_bundle(receipt), keys))
    except ReceiptError:
        return True


def signed_elsewhere(place: Path, receipt: bytes) -> bytes:
    """The same statement under a key and a ledger of somebody else."""
    with opened_site(place):
        site_keys(place).new()
    return signed_by(place, read_bundle(receipt).facts)


def signed_by(state: Path, facts: ReceiptFacts) -> bytes:
    """A receipt with this content, by the key that a state directory holds."""
    signer, ledger = site_keys(state).signer(), site_ledger(state)
    statement = build_statement(replace(facts, signers=signers([signer])))
    index = ledger.append(sign_envelope(statement, [signer]), signer).index
    return make_bundle(ledger, index, site_keys(state).keys())


# --- credentialed researcher with source and receipt ----------------------------------------------


def test_a_researcher_reads_the_same_receipt_whoever_was_deleted(traces: dict[int, Trace]) -> None:
    """Enumeration over all patients: stays, hours and wards differ between them, receipts only in what is random."""
    assert len({trace.hours for trace in traces.values()}) > 5
    assert len({tuple(sorted(trace.files.items())) for trace in traces.values()}) == len(traces)
    assert len({json.dumps(masked(json.loads(trace.receipt))) for trace in traces.values()}) == 1
    assert len({len(trace.receipt) for trace in traces.values()}) == 1
    for number in (0, 1):  # the intent, the receipt
        entries = [trace.entries[number] for trace in traces.values()]
        assert len({json.dumps(masked({"envelope": json.loads(entry)})) for entry in entries}) == 1


def masked(document: dict[str, Any]) -> dict[str, Any]:
    """A receipt without nonce-bound digest, keyed commitment, signatures, hashes over these, and its minute."""
    envelope = document["envelope"]
    statement = json.loads(base64.b64decode(envelope["payload"]))
    statement["subject"][0]["digest"]["sha256"] = statement["predicate"]["commitment"] = ""
    for name in ("completed_at", "recorded_at"):
        statement["predicate"].pop(name, None)
    envelope = {**envelope, "payload": statement, "signatures": [row["keyid"] for row in envelope["signatures"]]}
    rest = {name: document[name] for name in ("index", "keys") if name in document}
    return {**rest, "envelope": envelope, "steps": len(document.get("proof", ()))}


def test_what_is_random_in_a_receipt_answers_no_guess_of_a_researcher(traces: dict[int, Trace]) -> None:
    """Plain hashes of ids, and states that are built again without each patient, are nowhere in any receipt."""
    facts = [read_bundle(trace.receipt).facts for trace in traces.values()]
    assert len({fact.commitment for fact in facts} | {fact.state_digest for fact in facts}) == 2 * len(traces)
    guesses = {state_digest(build_state(trace.files, nonce="0" * 64)) for trace in traces.values()}
    for subject in traces:
        ids = {"stay_ids": [], "subject_ids": [str(subject)]}
        for text in (str(subject), f"subject:{subject}", json.dumps(ids, separators=(",", ":"))):
            guesses.add(hashlib.sha256(text.encode()).hexdigest())
        guesses.add(commitment(bytes(32), (subject,)))
    for trace in traces.values():
        told = b"".join((trace.receipt, *trace.entries, *map(payload, trace.entries)))
        assert [guess for guess in guesses if guess.encode() in told] == []
        assert [subject for subject in traces if str(subject).encode() in told] == []


def payload(entry: bytes) -> bytes:
    return base64.b64decode(json.loads(entry)["payload"])


# --- reader of two reports ------------------------------------------------------------------------


def test_a_reader_of_two_reports_sees_no_small_count_but_can_subtract_large_ones(traces: dict[int, Trace]) -> None:
    for trace in traces.values():
        before, after = figures_of(trace.before), figures_of(trace.after)
        for page in (before, after):
            counted = [value for name, value in page if re.match(r"(Stays|Patients)\b", name)]
            assert counted
            assert all(value == "hidden" or number(value) == 0 or number(value) > 10 for value in counted)
        assert str(trace.subject) not in trace.before + trace.after
        # What does not hold: two reports are one subtraction away from the patient's own hours.
        (one,), (other,) = ({v for n, v in page if n == "Stay-hours admitted"} for page in (before, after))
        assert number(one) - number(other) == trace.hours


def figures_of(page: str) -> list[tuple[str, str]]:
    """Every piece of text of a page with the piece after it."""
    text = re.sub(r"<(style|svg).*?</\1>", " ", page, flags=re.DOTALL)
    pieces = [html.unescape(piece.strip()) for piece in re.split(r"<[^>]+>", text)]
    shown = [piece for piece in pieces if piece]
    return list(itertools.pairwise(shown))


def number(text: str) -> int:
    found = re.match(r"[\d,]+", text)
    return int(found.group().replace(",", "")) if found else 11


# --- insider with write access, no key ------------------------------------------------------------


def test_an_insider_without_the_key_is_noticed(gone: Gone, told: Told, tmp_path: Path) -> None:
    layout, state, _ = gone
    verified = ("verify", layout.root, "--state-dir", state)
    assert told(*verified)[0] == 0
    for spoil, named in INSIDER.items():
        saved = tmp_path / "saved"
        shutil.copytree(layout.root, saved / "run")
        shutil.copytree(state, saved / "state")
        spoil(layout, state)
        code, text = told(*verified)
        assert (code, named in text) == (1, True), (spoil.__name__, text)
        for name, place in (("run", layout.root), ("state", state)):
            shutil.rmtree(place)
            (saved / name).rename(place)
    assert told(*verified)[0] == 0


def test_an_insider_who_replaces_keys_and_ledger_too_is_noticed_by_a_key_kept_elsewhere_only(
    gone: Gone, told: Told, tmp_path: Path
) -> None:
    layout, state, _ = gone
    shutil.copyfile(state / "keys" / "operator.pub.pem", tmp_path / "kept.pem")
    key_added(layout, state)
    shutil.rmtree(state / "ledger")
    shutil.copytree(tmp_path / "elsewhere" / "ledger", state / "ledger")
    assert told("verify", layout.root, "--state-dir", state)[0] == 0  # what does not hold
    assert told("verify", layout.root, "--public-key", tmp_path / "kept.pem")[0] == 1


def memory_changed(layout: RunLayout, state: Path) -> None:
    (file, *_) = sorted((layout.memories / "wards").glob("*"))
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)


def file_added_with_a_fitting_state(layout: RunLayout, state: Path) -> None:
    (layout.results / "more.json").write_text("{}")
    layout.state_manifest.write_bytes(build_state(state_files(layout)))


def receipt_by_an_own_key(layout: RunLayout, state: Path) -> None:
    receipt, place = receipt_of(layout), layout.root.parent / "elsewhere"
    shutil.rmtree(place, ignore_errors=True)
    receipt.write_bytes(signed_elsewhere(place, receipt.read_bytes()))


def entry_dropped(layout: RunLayout, state: Path) -> None:
    (state / "ledger" / "entries" / "0000.json").unlink()


def entries_swapped(layout: RunLayout, state: Path) -> None:
    one, other = sorted((state / "ledger" / "entries").glob("*.json"))
    first = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(first)


def ledger_cut(layout: RunLayout, state: Path) -> None:
    (state / "ledger" / "entries" / "0001.json").unlink()


def key_added(layout: RunLayout, state: Path) -> None:
    """A directory of keys in which the operator is somebody else."""
    receipt_by_an_own_key(layout, state)
    shutil.rmtree(state / "keys")
    shutil.copytree(layout.root.parent / "elsewhere" / "keys", state / "keys")


INSIDER = {
    memory_changed: "differs from what state.json lists",
    file_added_with_a_fitting_state: "was swapped",
    receipt_by_an_own_key: "key",
    entry_dropped: "missing",
    entries_swapped: "root",
    ledger_cut: "missing",
    key_added: "ledger",
}


# --- operator with the key ------------------------------------------------------------------------


def test_an_operator_can_sign_an_untrue_statement_but_neither_cut_nor_fork_unnoticed(
    gone: Gone, told: Told, tmp_path: Path
) -> None:
    layout, state, _ = gone
    keys, kept = site_keys(state).keys(), site_ledger(state).checkpoint()
    assert kept is not None
    untrue = signed_by(state, replace(read_bundle(receipt_of(layout).read_bytes()).facts, outcome="deleted"))
    assert not rejected(untrue, keys)  # what does not hold: a signature is no proof of what was done
    assert site_ledger(state).verify(keys, kept) == []
    origin = kept.origin
    cut_and_signed_again(state, origin)
    assert site_ledger(state).verify(keys) == []
    assert site_ledger(state).verify(keys, kept) != []
    assert told("verify", receipt_of(layout), "--state-dir", state, "--since", kept.line)[0] == 1
    assert told("verify", receipt_of(layout), "--state-dir", state)[0] == 1  # a receipt is a checkpoint too


def cut_and_signed_again(state: Path, origin: str) -> None:
    """Leave only the first entry, and sign that under the name of the old ledger."""
    entry, signer = site_ledger(state).entry(0), site_keys(state).signer()
    shutil.rmtree(state / "ledger")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("reports.receipts.ledger.secrets.token_bytes", lambda count: bytes.fromhex(origin)[:count])
        site_ledger(state).append(entry, signer)


def test_two_signatures_make_two_people_necessary(deletable: Made, tmp_path: Path) -> None:
    layout, settings = deletable
    state = settings.state or tmp_path
    site_keys(state).new("steward")
    delete(layout.root, [asked(tmp_path, "request-one", subjects_of_run(layout)[0])], settings)
    facts = verify(layout.root, trust(None, state, None), state).last.facts
    assert sorted(row.role for row in facts.signers) == ["operator", "steward"]
    document = json.loads(receipt_of(layout).read_bytes())
    document["envelope"]["signatures"].pop()
    assert rejected(dumps(document), site_keys(state).keys())


# --- run-swapper ----------------------------------------------------------------------------------


def test_a_run_in_the_place_of_another_is_noticed(gone: Gone, told: Told, tmp_path: Path) -> None:
    layout, state, subject = gone
    verified = ("verify", layout.root, "--public-key", state / "keys" / "operator.pub.pem")
    assert told(*verified)[0] == 0
    backup = tmp_path / "backup"
    shutil.copytree(layout.receipts, backup / "receipts")
    layout.root.rename(tmp_path / "kept")
    shutil.copytree(backup, layout.root)
    shutil.copyfile(tmp_path / "kept" / "state.json", layout.state_manifest)
    code, text = told(*verified)
    assert (code, "state.json" in text or "suppressed" in text) == (1, True)
    layout.state_manifest.write_bytes(build_state(state_files(layout)))
    assert told(*verified)[0] == 1
    layout.state_manifest.unlink()
    assert told(*verified)[0] in (1, 3)
    assert subject in subjects_of_run(layout)


# --- backup-restorer ------------------------------------------------------------------------------


def test_a_restored_backup_is_refused_by_every_command_and_cured(gone: Gone, told: Told, tmp_path: Path) -> None:
    layout, state, subject = gone
    shutil.rmtree(layout.root)
    (tmp_path / "backup").rename(layout.root)
    site = ("--state-dir", state)
    source = json.loads(layout.manifest.read_text())["source"]["path"]
    for words in (
        ("study", source, "--out", layout.root, *site),
        ("report", layout.root, *site),
        ("report", layout.root),
        ("verify", layout.root, *site),
        ("export", "meds", layout.root, "--out", tmp_path / "meds", *site),
    ):
        code, text = told(*words)
        assert (code, "--suppressed" in text) == (1, True), (words, text)
        assert str(subject) not in text
    assert not (tmp_path / "meds").exists()
    assert told("delete", layout.root, "--suppressed", *site)[0] == 0
    assert subject not in subjects_of_run(layout)
    meds = ("export", "meds", layout.root, "--out", tmp_path / "meds")
    for words in (("report", layout.root), ("verify", layout.root), meds):
        assert told(*words, *site)[0] == 0, words


# --- requester ------------------------------------------------------------------------------------


def test_a_requester_checks_the_receipt_with_their_key_and_their_id_and_with_no_other(
    gone: Gone, told: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout, state, subject = gone
    annex, handed = state / "annexes" / "request-one.json", tmp_path / "handed.json"
    handed.write_bytes(subject_key_document(annex.read_bytes()))
    words = ("verify", receipt_of(layout), "--public-key", state / "keys" / "operator.pub.pem", "--subject-key", handed)
    others = [other for other in subjects_of_run(layout) if other != subject]
    for number_typed, expected in ((subject, 0), *((other, 1) for other in others)):
        monkeypatch.setattr("sys.stdin", io.StringIO(f"{number_typed}\n"))
        code, text = told(*words)
        assert code == expected
        assert str(number_typed) not in text
    assert set(json.loads(handed.read_bytes())) == {"commitment_key", "request_id"}
    annex.unlink()  # destroyed at its date: nobody, the operator included, can link the receipt any more
    assert str(subject) not in receipt_of(layout).read_text()


# --- crash ----------------------------------------------------------------------------------------

COMMANDS: dict[str, Callable[[RunLayout, Path], tuple[object, ...]]] = {
    "study": lambda layout, state: ("study", layout.root.parent / "nowhere", "--out", layout.root.parent / "other"),
    "report": lambda layout, state: ("report", layout.root),
    "verify": lambda layout, state: ("verify", layout.root),
    "export": lambda layout, state: ("export", "meds", layout.root, "--out", layout.root.parent / "meds"),
    "receipt export": lambda layout, state: ("receipt", "export", receipt_of(layout), "--out", state.parent / "page"),
    "keys rotate": lambda layout, state: ("keys", "rotate"),
    "delete": lambda layout, state: ("delete", layout.root, "--dry-run"),
    "audit": lambda layout, state: ("audit", "nowhere", "--regimes", "none", "--out", state.parent / "audit.json"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_after_a_crash_past_the_intent_the_next_command_of_any_kind_completes_it(
    deletable: Made, told: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    layout, settings = deletable
    state, subject = settings.state or tmp_path, subjects_of_run(layout)[0]

    def killed(*_: object) -> str:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(work, "finish", killed)
        with pytest.raises(KeyboardInterrupt):
            delete(layout.root, [asked(tmp_path, "request-one", subject)], settings)
    assert subject in subjects_of_run(layout)
    told(*COMMANDS[name](layout, state), "--state-dir", state)
    assert subject not in subjects_of_run(layout)
    assert not next_of(layout).root.exists()
    assert len(verify(layout.root, trust(None, state, None), state).bundles) == 1
    assert site_ledger(state).size == 2
    with opened_site(state) as site:
        assert site.requests() == {"request-one": "done"}
        assert list((state / "inbox").iterdir()) == []

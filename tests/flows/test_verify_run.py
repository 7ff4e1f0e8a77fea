"""`icu-memory verify` and its neighbours: exit codes, the first mismatch by name, runs that were swapped."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import pytest

from flows.cli import main
from flows.run.registry import opened_site
from flows.settings import Settings
from flows.steps.site import settled
from flows.steps.verify import site_keys, site_ledger
from reports.receipts.annex import annex_document, commitment, new_commitment_key, write_annex
from reports.receipts.bundle import make_bundle
from reports.receipts.envelope import sign_envelope
from reports.receipts.moment import moment
from reports.receipts.state import build_state, state_digest
from reports.receipts.statement import Action, ReceiptFacts, RequestFacts, build_statement, signers

SUBJECT = 10_000_032


@dataclass(frozen=True)
class Deleted:
    """A run after a deletion, with its site."""

    run: Path
    state: Path
    receipt: Path

    @property
    def public_key(self) -> str:
        return str(self.state / "keys" / "operator.pub.pem")


def a_run(root: Path) -> Path:
    """Files of the kinds that a run holds; what is in them does not matter here."""
    for name in (
        "results/retention.json",
        "counts/fixed-context/bucket=00.parquet",
        "memories/svdd/bucket=00.safetensors",
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    (root / "report.html").write_text("<p>report")
    digest = hashlib.sha256(b"<p>report").hexdigest()
    steps = {"report": {"state": "done", "files": {"report.html": {"bytes": 9, "sha256": digest}}}}
    manifest = {"settings": {}, "source": {}, "versions": {}, "queries": {}, "steps": steps}
    (root / "manifest.json").write_text(json.dumps(manifest))
    return root


def delete(run: Path, state: Path, request_id: str = "request-0000", run_id: str = "00112233445566aa") -> Path:
    """Write state manifest, ledger entry, receipt and annex as a deletion does."""
    inside = ("cohort", "memories", "retained", "counts", "results")
    files = [file for part in inside for file in sorted((run / part).rglob("*")) if file.is_file()]
    digests = {str(file.relative_to(run)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
    content = build_state(digests)
    (run / "state.json").write_bytes(content)
    signer, key = site_keys(state).signer(), new_commitment_key()
    times = "2026-01-31T09:00:00Z", "2026-03-02T09:00:00Z"
    about = RequestFacts(request_id, times[0], "consent withdrawn", "patient", "patient", "data steward", times[1])
    facts = ReceiptFacts(
        state_digest(content), run_id, about, "deleted", commitment(key, [SUBJECT]),
        (Action("tokens", "rows removed"),), (), ("tables",), ("media remanence",), {"python": "3.11.2"}, moment(),
        signers([signer]),
    )  # fmt: skip
    at = site_ledger(state).append(sign_envelope(build_statement(facts), [signer]), signer)
    receipt = run / "receipts" / f"{request_id}.json"
    receipt.parent.mkdir(exist_ok=True)
    receipt.write_bytes(make_bundle(site_ledger(state), at.index, site_keys(state).keys()))
    write_annex(state / "annexes" / f"{request_id}.json", annex_document(request_id, key, date(2027, 1, 1), {}))
    return receipt


@pytest.fixture
def deleted(tmp_path: Path) -> Deleted:
    state = tmp_path / "state"
    with opened_site(state):
        site_keys(state).new()
    run = a_run(tmp_path / "run")
    return Deleted(run, state, delete(run, state))


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Iterator[object]:
    def run(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        assert captured.err.count("error:") == (code == 1 or "error:" in captured.err)
        return code, captured.out, captured.err

    return run


def test_a_run_and_its_receipt_verify_with_the_public_key_alone_and_with_the_site(deleted, told):
    for target in (deleted.run, deleted.receipt):
        assert told("verify", target, "--public-key", deleted.public_key)[0] == 0
        assert told("verify", target, "--state-dir", deleted.state)[0] == 0


def test_without_a_key_nothing_is_decided_and_the_fingerprint_is_shown(deleted, told):
    code, out, _ = told("verify", deleted.receipt)
    assert code == 3
    assert site_keys(deleted.state).signer().key_id in out.replace(" ", "")
    assert json.loads(told("verify", deleted.receipt, "--json")[1])["verified"] is False


def test_another_key_is_a_mismatch_and_a_missing_one_cannot_be_decided(deleted, told, tmp_path):
    with opened_site(tmp_path / "other"):
        site_keys(tmp_path / "other").new()
    code, _, err = told("verify", deleted.receipt, "--public-key", tmp_path / "other/keys/operator.pub.pem")
    assert (code, "given or pinned" in err) == (1, True)
    assert told("verify", deleted.receipt, "--public-key", tmp_path / "none.pem")[0] == 3
    assert told("verify", tmp_path / "none.json", "--public-key", deleted.public_key)[0] == 3


def test_a_changed_receipt_is_a_mismatch_with_and_without_a_key(deleted, told):
    deleted.receipt.write_bytes(deleted.receipt.read_bytes() + b"\n")
    assert told("verify", deleted.receipt)[0] == 1
    assert told("verify", deleted.run, "--public-key", deleted.public_key)[0] == 1


@pytest.mark.parametrize("name", ["results/retention.json", "memories/svdd/bucket=00.safetensors", "report.html"])
def test_a_changed_file_and_a_missing_file_of_a_run_are_named(deleted, told, name):
    (deleted.run / name).write_text("changed")
    code, _, err = told("verify", deleted.run, "--public-key", deleted.public_key)
    assert (code, name in err, "differs" in err) == (1, True, True)
    (deleted.run / name).unlink()
    code, _, err = told("verify", deleted.run, "--public-key", deleted.public_key)
    assert (code, name in err) == (0, False) if name == "report.html" else (1, True)


@pytest.mark.parametrize(
    "name",
    [
        "results/more.json",
        "cohort/stays.parquet",
        "notes.txt",
        ".generation/stream/x",
        "memories/vla/bucket=00.safetensors",
    ],
)
def test_a_file_that_was_added_is_named(deleted, told, name):
    (deleted.run / name).parent.mkdir(parents=True, exist_ok=True)
    (deleted.run / name).write_text("added")
    code, _, err = told("verify", deleted.run, "--public-key", deleted.public_key)
    assert (code, name in err) == (1, True)


def test_a_link_in_place_of_a_file_is_a_mismatch(deleted, told, tmp_path):
    file = deleted.run / "results" / "retention.json"
    file.rename(tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")
    assert told("verify", deleted.run, "--public-key", deleted.public_key)[0] == 1


def test_another_run_under_the_same_receipts_is_noticed(deleted, told, tmp_path):
    other = a_run(tmp_path / "other")
    shutil.copytree(deleted.run / "receipts", other / "receipts")
    assert told("verify", other, "--public-key", deleted.public_key)[0] == 3
    (other / "results" / "retention.json").write_text("another run")
    (other / "state.json").write_bytes(build_state({}))
    code, _, err = told("verify", other, "--public-key", deleted.public_key)
    assert (code, "was swapped" in err) == (1, True)


def test_a_receipt_of_another_run_among_the_receipts_is_noticed(deleted, told, tmp_path):
    other = delete(a_run(tmp_path / "other"), deleted.state, "request-0001", "ffffffffffffffff")
    delete(deleted.run, deleted.state, "request-0002")
    assert told("verify", deleted.run, "--public-key", deleted.public_key)[0] == 0
    shutil.copy(other, deleted.run / "receipts")
    code, _, err = told("verify", deleted.run, "--public-key", deleted.public_key)
    assert (code, "another run" in err) == (1, True)


def test_a_receipt_under_another_name_is_noticed(deleted, told):
    deleted.receipt.rename(deleted.receipt.with_name("request-0009.json"))
    assert "another request" in told("verify", deleted.run, "--public-key", deleted.public_key)[2]


def test_a_former_state_put_back_after_a_second_deletion_is_noticed(deleted, told):
    former = (deleted.run / "state.json").read_bytes()
    delete(deleted.run, deleted.state, "request-0001")
    assert told("verify", deleted.run, "--state-dir", deleted.state)[0] == 0
    (deleted.run / "state.json").write_bytes(former)
    assert told("verify", deleted.run, "--state-dir", deleted.state)[0] == 1


def test_a_run_without_receipts_cannot_be_decided(told, tmp_path):
    assert told("verify", a_run(tmp_path / "run"))[0] == 3


def test_a_kept_checkpoint_is_compared_and_a_cut_ledger_is_noticed(deleted, told, tmp_path):
    delete(deleted.run, deleted.state, "request-0001")
    line = (deleted.state / "ledger" / "checkpoint").read_text().strip()
    (tmp_path / "kept").write_text(line + "\n")
    for since in (line, tmp_path / "kept"):
        assert told("verify", deleted.receipt, "--state-dir", deleted.state, "--since", since)[0] == 0
    code, _, err = told("verify", deleted.receipt, "--public-key", deleted.public_key, "--since", line)
    assert (code, "--state-dir" in err) == (3, True)
    assert told("verify", deleted.receipt, "--state-dir", deleted.state, "--since", line[:-3] + "AA=")[0] == 1
    (deleted.state / "ledger" / "entries" / "0001.json").unlink()
    assert told("verify", deleted.receipt, "--state-dir", deleted.state)[0] == 1


def test_the_holder_of_an_id_can_check_that_a_receipt_is_about_it(deleted, told, tmp_path, monkeypatch):
    annex = deleted.state / "annexes" / "request-0000.json"
    key_file = tmp_path / "key.json"
    hand_over = ("receipt", "export", deleted.receipt, "--out", tmp_path / "r.html", "--subject-key", key_file)
    assert told(*hand_over, "--state-dir", deleted.state)[0] == 0
    assert key_file.stat().st_mode & 0o777 == 0o600
    assert set(json.loads(key_file.read_bytes())) == {"commitment_key", "request_id"}
    for file in (annex, key_file):
        for subject, expected in ((SUBJECT, 0), (SUBJECT + 1, 1)):
            monkeypatch.setattr("sys.stdin", io.StringIO(f"{subject}\n"))
            code, out, err = told("verify", deleted.receipt, "--public-key", deleted.public_key, "--subject-key", file)
            assert code == expected
            assert str(subject) not in out + err
    held = json.loads(key_file.read_bytes()) | {"subject_ids": [str(SUBJECT)]}
    key_file.write_text(json.dumps(held, sort_keys=True, separators=(",", ":")))
    arguments = ("verify", deleted.receipt, "--public-key", deleted.public_key, "--subject-key", key_file)
    assert told(*arguments)[0] == 0
    key_file.write_text("{}")
    assert told(*arguments)[0] == 1
    assert told(*arguments[:-1], tmp_path / "none")[0] == 3
    annex.unlink()  # destroyed at its date
    code, _, err = told(*hand_over, "--state-dir", deleted.state)
    assert (code, err.count("\n"), "was destroyed" in err) == (3, 1, True)


def test_keys_are_made_once_rotated_and_named(told, tmp_path):
    state = tmp_path / "site"
    assert told("keys", "new")[0] == 2
    code, out, _ = told("keys", "new", "--state-dir", state)
    assert (code, out.startswith("SHA256 ")) == (0, True)
    assert told("keys", "new", "--state-dir", state)[0] == 1
    assert told("keys", "rotate", "--state-dir", state)[0] == 0
    assert told("keys", "rotate", "--state-dir", state, "--role", "steward")[0] == 3
    assert told("keys", "new", "--state-dir", state, "--role", "nobody")[0] == 2
    assert {key.role for key in site_keys(state).keys().values()} == {"operator"}


def test_a_receipt_outlives_the_rotation_of_its_key(deleted, told):
    old = Path(deleted.public_key).read_bytes()
    assert told("keys", "rotate", "--state-dir", deleted.state)[0] == 0
    assert told("verify", deleted.run, "--state-dir", deleted.state)[0] == 0
    assert told("verify", deleted.run, "--public-key", deleted.public_key)[0] == 1
    Path(deleted.public_key).write_bytes(old)
    assert told("verify", deleted.run, "--public-key", deleted.public_key)[0] == 0


def test_receipts_are_shown_in_plain_words_and_exported_as_a_page(deleted, told, tmp_path):
    code, out, _ = told("receipt", "show", deleted.receipt)
    assert (code, "consent withdrawn" in out) == (0, True)
    assert json.loads(told("receipt", "show", deleted.receipt, "--json")[1])["outcome"] == "deleted"
    page = tmp_path / "receipt.html"
    assert told("receipt", "export", deleted.receipt, "--out", page, "--public-key", deleted.public_key)[0] == 0
    assert "were checked against known keys" in page.read_text()
    page.unlink()
    deleted.receipt.write_bytes(deleted.receipt.read_bytes().replace(b"index", b"jndex"))
    for arguments in (("show", deleted.receipt), ("export", deleted.receipt, "--out", page)):
        assert told("receipt", *arguments)[0] == 1
    assert not page.exists()
    assert told("receipt", "show", deleted.run)[0] == 3


def test_a_receipt_of_a_foreign_role_is_refused_by_the_site(deleted, told):
    directory = deleted.state / "keys" / "directory.json"
    content = directory.read_bytes()
    directory.write_bytes(content.replace(b'"operator"', b'"steward"'))
    assert told("verify", deleted.receipt, "--state-dir", deleted.state)[0] == 1
    directory.write_bytes(content)
    assert told("verify", deleted.receipt, "--state-dir", deleted.state)[0] == 0


def test_any_command_of_a_site_destroys_the_annexes_whose_date_has_come(tmp_path, told):
    state = tmp_path / "site"
    assert told("keys", "new", "--state-dir", state)[0] == 0
    with opened_site(state):
        pass
    for name, last in (("request-past", date(2020, 1, 1)), ("request-kept", date(2999, 1, 1))):
        write_annex(state / "annexes" / f"{name}.json", annex_document(name, new_commitment_key(), last, {}))
    settled(Settings.model_validate({"state": state}))
    assert [file.name for file in (state / "annexes").iterdir()] == ["request-kept.json"]

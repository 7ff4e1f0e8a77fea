"""Request files: every rule of their form, the refusals that repeat no id, and the command that writes one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flows.cli import main
from flows.errors import FlowError
from flows.run.requests import ids_from_text, new_request, read_request, warning, write_request

CANARY = 482916037755
GOOD: dict[str, Any] = {
    "request_id": "request-one",
    "received_at": "2026-01-31T13:00:00Z",
    "basis": "consent withdrawn",
    "scope": "patient",
    "subject_ids": [CANARY, 5],
    "requester_role": "patient",
    "approver": "data steward",
    "due_at": "2026-02-28T13:00:00Z",
}


def written(folder: Path, document: object, mode: int = 0o600) -> Path:
    file = folder / "request.json"
    file.write_text(document if isinstance(document, str) else json.dumps(document))
    file.chmod(mode)
    return file


def changed(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in {**GOOD, **fields}.items() if value is not None}


# --- reading --------------------------------------------------------------------------------------


def test_a_good_request_is_read_field_by_field_with_its_ids_sorted(tmp_path):
    request = read_request(written(tmp_path, GOOD))
    assert request.subject_ids == (5, CANARY)
    assert request.stay_ids == ()
    assert request.without_ids() == {name: value for name, value in GOOD.items() if name != "subject_ids"}
    assert str(CANARY) not in repr(request)


@pytest.mark.parametrize(
    "fields",
    [
        {"scope": "stay", "subject_ids": None, "stay_ids": [7]},
        {"scope": "release retraction"},
        {"scope": "release retraction", "subject_ids": None, "stay_ids": [7]},
        {"subject_ids": [2**63 - 1, -(2**63), 0]},
        {"received_at": "2026-01-31T13:00:00.25Z"},
        {"request_id": "0" + "a" * 63},
        {"request_id": "2026-0012345"},
    ],
)
def test_what_the_form_allows_is_accepted(tmp_path, fields):
    assert read_request(written(tmp_path, changed(**fields))).approver == "data steward"


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"request_id": "short"}, "request_id"),
    ({"request_id": "-leading-hyphen"}, "request_id"),
    ({"request_id": "Upper-case-id"}, "request_id"),
    ({"request_id": "a" * 65}, "request_id"),
    ({"request_id": "request-one\n"}, "request_id"),
    ({"request_id": f"request-{CANARY}"}, "request_id"),
    ({"request_id": f"request-9{CANARY}9"}, "request_id"),
    ({"request_id": "request-5"}, "request_id"),
    ({"request_id": 12345678}, "request_id"),
    ({"basis": f"patient {CANARY} withdrew"}, "basis"),
    ({"approver": f"steward of {CANARY}"}, "approver"),
    ({"basis": ""}, "basis"),
    ({"basis": " "}, "basis"),
    ({"basis": "a\nb"}, "basis"),
    ({"basis": "x" * 501}, "basis"),
    ({"received_at": "2026-01-31 13:00:00Z"}, "received_at"),
    ({"received_at": "2026-01-31T13:00:00"}, "received_at"),
    ({"received_at": "2026-01-31T13:00:00+00:00"}, "received_at"),
    ({"received_at": "2026-02-30T13:00:00Z"}, "received_at"),
    ({"due_at": "soon"}, "due_at"),
    ({"due_at": GOOD["received_at"]}, "due_at"),
    ({"due_at": "2026-01-30T13:00:00Z"}, "due_at"),
    ({"scope": "everything"}, "scope"),
    ({"scope": "stay"}, "scope"),
    ({"stay_ids": [7]}, "scope"),
    ({"subject_ids": None}, "scope"),
    ({"subject_ids": []}, "subject_ids"),
    ({"subject_ids": CANARY}, "subject_ids"),
    ({"subject_ids": [str(CANARY)]}, "subject_ids"),
    ({"subject_ids": [1.5]}, "subject_ids"),
    ({"subject_ids": [True]}, "subject_ids"),
    ({"subject_ids": [2**63]}, "subject_ids"),
    ({"subject_ids": [CANARY, CANARY]}, "subject_ids"),
    ({"approver": "patient"}, "approver"),
    ({"approver": " Patient "}, "approver"),
    ({"approver": None}, "approver"),
    ({"note": str(CANARY)}, "unknown"),
]


@pytest.mark.parametrize(("fields", "told"), REFUSED)
def test_what_breaks_a_rule_is_refused_in_one_line_that_names_the_field_and_no_id(tmp_path, fields, told):
    with pytest.raises(FlowError) as refusal:
        read_request(written(tmp_path, changed(**fields)))
    line = str(refusal.value).removeprefix(f"request {tmp_path}/request.json")
    assert told in line
    assert "\n" not in line
    assert str(CANARY) not in line


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[]", "not a JSON object"),
        ("[" * 100_000, "not JSON"),
        (json.dumps(GOOD)[:-1] + ', "approver": "somebody else"}', "approver is there twice"),
        (json.dumps(GOOD)[:-1] + f', "{CANARY}": 1, "{CANARY}": 2}}', "an unknown field is there twice"),
        (json.dumps(GOOD).replace(str(CANARY), "NaN"), "subject_ids"),
        (json.dumps(GOOD).replace(str(CANARY), "9" * 5000), "64-bit|not JSON"),
    ],
)
def test_text_that_is_no_such_object_is_refused(tmp_path, text, told):
    with pytest.raises(FlowError, match=told) as refusal:
        read_request(written(tmp_path, text))
    assert str(CANARY) not in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_files_that_cannot_be_read_or_that_anybody_may_change_are_refused(tmp_path):
    with pytest.raises(FlowError, match="cannot be read"):
        read_request(tmp_path / "absent.json")
    with pytest.raises(FlowError, match="cannot be read"):
        read_request(tmp_path)
    with pytest.raises(FlowError, match="anybody may change"):
        read_request(written(tmp_path, GOOD, mode=0o602))
    file = written(tmp_path, GOOD)
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(FlowError, match="UTF-8"):
        read_request(file)


def test_a_file_that_others_may_read_is_taken_with_a_warning(tmp_path):
    file = written(tmp_path, GOOD, mode=0o644)
    assert read_request(file).scope == "patient"
    assert "chmod 600" in (warning(file) or "")
    file.chmod(0o600)
    assert warning(file) is None


def test_a_digest_depends_on_every_field_and_on_the_key_and_not_on_the_order_of_ids(tmp_path):
    key = bytes(32)
    base = read_request(written(tmp_path, GOOD)).digest(key)
    assert read_request(written(tmp_path, changed(subject_ids=[5, CANARY]))).digest(key) == base
    changes: list[dict[str, Any]] = [
        {"request_id": "request-two"}, {"basis": "other"}, {"subject_ids": [5]}, {"approver": "other"},
        {"received_at": "2026-01-30T13:00:00Z"}, {"due_at": "2026-03-01T13:00:00Z"}, {"requester_role": "guardian"},
        {"scope": "release retraction"}, {"scope": "stay", "subject_ids": None, "stay_ids": [CANARY, 5]},
    ]  # fmt: skip
    found = {read_request(written(tmp_path, changed(**fields))).digest(key) for fields in changes}
    assert len(found | {base}) == len(changes) + 1
    assert read_request(written(tmp_path, GOOD)).digest(b"1" * 32) != base


# --- writing --------------------------------------------------------------------------------------


def test_a_written_request_is_read_back_and_is_for_its_owner_alone(tmp_path):
    request = new_request("request-one", "consent withdrawn", "stay", [9, 3, 9], "patient", "data steward")
    write_request(tmp_path / "request.json", request)
    assert read_request(tmp_path / "request.json") == request
    assert request.stay_ids == (3, 9)
    assert (tmp_path / "request.json").stat().st_mode & 0o777 == 0o600
    assert [file.name for file in tmp_path.iterdir()] == ["request.json"]
    with pytest.raises(FlowError, match="there already"):
        write_request(tmp_path / "request.json", request)
    with pytest.raises(FlowError, match="cannot be written"):
        write_request(tmp_path / "absent" / "request.json", request)


def test_ids_are_read_from_lines_blanks_and_commas_and_bad_ones_counted_not_repeated():
    assert ids_from_text("1, 2\n3\t4,\n", "ids") == [1, 2, 3, 4]
    for text in ("", f"{CANARY}x", f"{CANARY} -1", "1.5", "9" * 20, "٣"):
        with pytest.raises(FlowError) as refusal:
            ids_from_text(text, "ids")
        assert str(CANARY) not in str(refusal.value)


Run = Callable[..., int]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    def new(**options: str) -> int:
        given = {
            "out": str(tmp_path / "request.json"), "request-id": "request-one", "basis": "consent withdrawn",
            "scope": "patient", "requester-role": "patient", "approver": "data steward",
        } | options  # fmt: skip
        return main(["request", "new", *(word for name, value in given.items() for word in (f"--{name}", value))])

    return new


def test_the_command_takes_ids_from_a_file_and_says_what_is_next(tmp_path, run, capsys):
    ids = tmp_path / "ids.txt"
    ids.write_text(f"{CANARY}\n5\n")
    assert run(**{"ids-from": str(ids), "received-at": "2026-01-31T13:00:00Z"}) == 0
    request = read_request(tmp_path / "request.json")
    assert request.subject_ids == (5, CANARY)
    assert request.due_at == "2026-03-02T13:00:00Z"
    told = capsys.readouterr()
    assert told.out == f"{tmp_path}/request.json\n"
    assert "icu-memory delete RUN --request" in told.err
    assert str(CANARY) not in told.out + told.err


def test_the_command_takes_ids_from_a_pipe_and_has_no_option_for_them(tmp_path, run, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", (tmp_path / "pipe").open("w+"))
    (tmp_path / "pipe").write_text(f"{CANARY}")
    assert run(**{"scope": "stay"}) == 0
    assert read_request(tmp_path / "request.json").stay_ids == (CANARY,)
    assert run(**{"subject-ids": str(CANARY)}) == 2


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"approver": "patient"}, "approver"),
        ({"request-id": f"request-{CANARY}"}, "request_id"),
        ({"scope": "all"}, "scope"),
        ({"due-at": "tomorrow"}, "due_at"),
        ({"received-at": "today"}, "received_at"),
        ({"ids-from": "absent.txt"}, "cannot be read"),
    ],
)
def test_a_refused_request_is_one_line_and_writes_no_file(tmp_path, run, capsys, options, told):
    ids = tmp_path / "ids.txt"
    ids.write_text(f"{CANARY}\n")
    assert run(**({"ids-from": str(ids)} | options)) == 1
    talk = capsys.readouterr()
    assert talk.out == ""
    assert talk.err.count("\n") == 1
    assert told in talk.err
    assert str(CANARY) not in talk.err
    assert [file.name for file in tmp_path.iterdir()] == ["ids.txt"]

"""Deletion requests: read, checked field by field, written for their owner alone."""

from __future__ import annotations

import hmac
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal, cast, get_args

from flows.errors import FlowError
from flows.run.private import open_to_others, write_private

Scope = Literal["patient", "stay", "release retraction"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
# Within the month that Art. 12(3) GDPR gives.
DUE_DAYS = 30

_TEXTS = ("request_id", "received_at", "basis", "scope", "requester_role", "approver", "due_at")
_ID_FIELDS = ("subject_ids", "stay_ids")
_REQUEST_ID = re.compile(r"[a-z0-9][a-z0-9-]{7,63}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?Z")
_LONGEST_TEXT = 500
_LARGEST_FILE = 2**26
_OTHERS_WRITE = 0o002
# Shorter ids occur in dates and numbers by chance; they count where they stand alone.
_TELLING_DIGITS = 5


@dataclass(frozen=True)
class Request:
    """One deletion request; exactly one of the two tuples of ids is filled, sorted and without repeats.

    The ids stay out of its text form.  Times are RFC 3339 in UTC, as they stand in the file.
    """

    request_id: str
    received_at: str
    basis: str
    scope: Scope
    subject_ids: tuple[int, ...] = field(repr=False)
    stay_ids: tuple[int, ...] = field(repr=False)
    requester_role: str
    approver: str
    due_at: str

    def without_ids(self) -> dict[str, str]:
        """The fields that may be kept and shown after the deletion."""
        return {name: getattr(self, name) for name in _TEXTS}

    def to_json(self) -> bytes:
        """The request as a file that `read_request` reads."""
        ids = {name: list(getattr(self, name)) for name in _ID_FIELDS if getattr(self, name)}
        return (json.dumps(self.without_ids() | ids, indent=1, ensure_ascii=False) + "\n").encode()

    def digest(self, key: bytes) -> str:
        """HMAC-SHA256 (hex) of all fields under a site's key: equal for equal requests, and tells no id without it."""
        return hmac.digest(key, json.dumps(asdict(self), sort_keys=True).encode(), "sha256").hex()


def read_request(path: Path) -> Request:
    """Read and check a request file.

    Raises FlowError, one line without a value of the file, for a file that others may write, that is no JSON object,
    for fields that are missing, unknown, twice there or of another form, for an approver who is the requester, a due
    time not after receipt, and for an id that occurs in another field.  A file that others may read is accepted: see
    `warning`.
    """
    where = f"request {path}"
    try:
        if path.stat().st_mode & _OTHERS_WRITE:
            raise FlowError(f"{where}: anybody may change it; chmod 600 it and check what it asks for")
        if path.stat().st_size > _LARGEST_FILE:
            raise FlowError(f"{where}: is larger than {_LARGEST_FILE // 2**20} MiB; split it into several requests")
        text = path.read_text(encoding="utf-8")
    except OSError as failure:
        raise FlowError(f"{where}: cannot be read ({failure.strerror}); check the path") from None
    except UnicodeDecodeError:
        raise FlowError(f"{where}: is not UTF-8 text; write it with `icu-memory request new`") from None
    return parse_request(text, where)


def parse_request(text: str, where: str = "request") -> Request:
    """Check the text of a request; ``where`` begins the line of a refusal."""
    document = _document(text, where)
    _refuse_other_fields(document, where)
    texts = {name: _text(document[name], f"{where}: {name}") for name in _TEXTS}
    ids = {name: _ids(document.get(name), f"{where}: {name}") for name in _ID_FIELDS}
    _refuse_form(texts, where)
    _refuse_scope(texts["scope"], ids, where)
    _refuse_ids_in_text(texts, (*ids["subject_ids"], *ids["stay_ids"]), where)
    return Request(**cast("dict[str, Any]", texts | ids))


def warning(path: Path) -> str | None:
    """One line for a request file that others may read, or None."""
    return f"request {path}: can be read by others; chmod 600 it" if open_to_others(path) else None


def new_request(
    request_id: str,
    basis: str,
    scope: str,
    ids: Sequence[int],
    requester_role: str,
    approver: str,
    received_at: str | None = None,
    due_at: str | None = None,
) -> Request:
    """A checked request; it is received now and due in 30 days where no times are given.

    Ids are stays for the scope "stay" and patients otherwise.  Raises FlowError as `read_request` does.
    """
    received = received_at or _rfc3339(datetime.now(UTC))
    due = due_at or _rfc3339(_instant(received, "request: received_at") + timedelta(days=DUE_DAYS))
    document: dict[str, Any] = {"request_id": request_id, "received_at": received, "basis": basis, "scope": scope}
    document |= {"requester_role": requester_role, "approver": approver, "due_at": due}
    document["stay_ids" if scope == "stay" else "subject_ids"] = sorted(set(ids))
    return parse_request(json.dumps(document))


def write_request(path: Path, request: Request) -> None:
    """Write a new request file with mode 0600; raises FlowError where a file is there already or cannot be made."""
    try:
        write_private(path, request.to_json(), replace=False)
    except FileExistsError:
        raise FlowError(f"request {path}: is there already; name another --out") from None
    except OSError as failure:
        raise FlowError(f"request {path}: cannot be written ({failure.strerror}); name another --out") from None


def ids_from_text(text: str, where: str) -> list[int]:
    """Ids separated by white space or commas; raises FlowError, which repeats none, for anything else."""
    words = text.replace(",", " ").split()
    unreadable = [word for word in words if not re.fullmatch(r"[0-9]{1,19}", word)]
    if unreadable or not words:
        told = f"{len(unreadable)} of {len(words)} entries are not whole numbers" if words else "holds no id"
        raise FlowError(f"{where}: {told}; give ids separated by commas, blanks or line ends")
    return [int(word) for word in words]


def _document(text: str, where: str) -> dict[str, Any]:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        if len(set(names)) < len(names):
            twice = sorted({name for name in names if names.count(name) > 1} & {*_TEXTS, *_ID_FIELDS})
            raise FlowError(f"{where}: {', '.join(twice) or 'an unknown field'} is there twice; keep one")
        return dict(pairs)

    try:
        document = json.loads(text, object_pairs_hook=unique)
    except FlowError:
        raise
    except (ValueError, RecursionError):
        raise FlowError(f"{where}: is not JSON; write it with `icu-memory request new`") from None
    if not isinstance(document, dict):
        raise FlowError(f"{where}: is not a JSON object; write it with `icu-memory request new`")
    return document


def _refuse_other_fields(document: Mapping[str, Any], where: str) -> None:
    missing = [name for name in _TEXTS if name not in document]
    if missing:
        raise FlowError(f"{where}: no field {', '.join(missing)}; add it")
    unknown = set(document) - {*_TEXTS, *_ID_FIELDS}
    if unknown:
        known = ", ".join((*_TEXTS, *_ID_FIELDS))
        raise FlowError(f"{where}: {len(unknown)} unknown fields; keep only {known}")


def _text(value: object, where: str) -> str:
    if not isinstance(value, str) or not value.strip() or len(value) > _LONGEST_TEXT or not value.isprintable():
        raise FlowError(f"{where}: is not one line of 1 to {_LONGEST_TEXT} characters; correct it")
    return value


def _ids(value: object, where: str) -> tuple[int, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or not value:
        raise FlowError(f"{where}: is not a list of ids; list at least one or leave the field out")
    # A boolean is an integer to Python, not to JSON.
    bad = [number for number in value if type(number) is not int or not -(2**63) <= number < 2**63]
    if bad:
        raise FlowError(f"{where}: {len(bad)} of {len(value)} entries are not 64-bit integers; correct them")
    if len(set(value)) < len(value):
        raise FlowError(f"{where}: {len(value) - len(set(value))} of {len(value)} entries repeat an id; keep one each")
    return tuple(sorted(value))


def _refuse_form(texts: Mapping[str, str], where: str) -> None:
    if not _REQUEST_ID.fullmatch(texts["request_id"]):
        raise FlowError(f"{where}: request_id: is not 8 to 64 of a-z, 0-9 and -, the first no -; choose another")
    received, due = (_instant(texts[name], f"{where}: {name}") for name in ("received_at", "due_at"))
    if due <= received:
        raise FlowError(f"{where}: due_at: is not after received_at; correct one of them")
    if _folded(texts["approver"]) == _folded(texts["requester_role"]):
        raise FlowError(f"{where}: approver: is the requester; somebody else must approve")


def _refuse_scope(scope: str, ids: Mapping[str, tuple[int, ...]], where: str) -> None:
    if scope not in SCOPES:
        raise FlowError(f"{where}: scope: is none of {', '.join(SCOPES)}; correct it")
    filled = [name for name in _ID_FIELDS if ids[name]]
    wanted = {"patient": ["subject_ids"], "stay": ["stay_ids"]}.get(scope)
    if len(filled) != 1 or (wanted is not None and filled != wanted):
        raise FlowError(
            f"{where}: scope {scope} takes {' or '.join(wanted or _ID_FIELDS)} and no other ids; correct it"
        )


def _refuse_ids_in_text(texts: Mapping[str, str], ids: Sequence[int], where: str) -> None:
    telling = {str(number) for number in ids}
    for name in ("request_id", "basis", "requester_role", "approver"):
        runs = re.findall(r"\d+", texts[name])
        if any(_holds(run, telling) for run in runs):
            raise FlowError(f"{where}: {name}: holds an id of the request; receipts repeat it, so choose another")


def _holds(digits: str, ids: set[str]) -> bool:
    if digits in ids:
        return True
    lengths = {len(number) for number in ids if _TELLING_DIGITS <= len(number) <= len(digits)}
    return any(digits[at : at + n] in ids for n in lengths for at in range(len(digits) - n + 1))


def _instant(value: str, where: str) -> datetime:
    try:
        if not _TIME.fullmatch(value):
            raise ValueError
        return datetime.fromisoformat(value)
    except ValueError:
        raise FlowError(f"{where}: is no time such as 2026-01-31T13:00:00Z; correct it") from None


def _rfc3339(instant: datetime) -> str:
    return instant.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _folded(name: str) -> str:
    return " ".join(name.split()).casefold()

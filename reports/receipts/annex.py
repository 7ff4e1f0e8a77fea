"""What links a receipt to a patient: a keyed commitment, and the annex that holds its key until its destruction."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

from reports.receipts.canonical import dumps, from_hex, loads, with_fields
from reports.receipts.errors import ReceiptError
from reports.receipts.files import PRIVATE, sync_directory, write_whole

COMMITMENT_KEY_BYTES = 32

_ANNEX_FIELDS = ("commitment_key", "destroy_after", "details", "request_id")
_KEY_FIELDS = ("commitment_key", "request_id")
_ID_FIELDS = ("stay_ids", "subject_ids")


@dataclass(frozen=True)
class SubjectKey:
    """What the holder of an id needs to check a commitment: its key, and the ids where the file holds them."""

    request_id: str
    key: bytes = field(repr=False)
    subject_ids: tuple[int, ...] = field(default=(), repr=False)
    stay_ids: tuple[int, ...] = field(default=(), repr=False)


def new_commitment_key() -> bytes:
    """A fresh 32-byte key, one for each request."""
    return secrets.token_bytes(COMMITMENT_KEY_BYTES)


def commitment(key: bytes, subject_ids: Iterable[int] = (), stay_ids: Iterable[int] = ()) -> str:
    """HMAC-SHA256 (hex, RFC 2104) of the ids of a request under its key; their order does not count.

    Without the key it says nothing, however few ids there are to try; with key and ids anybody can check it.
    """
    if len(key) != COMMITMENT_KEY_BYTES:
        raise ReceiptError(
            f"commitment: its key has not {COMMITMENT_KEY_BYTES} bytes; make one with new_commitment_key"
        )
    ids = {"stay_ids": _texts(stay_ids), "subject_ids": _texts(subject_ids)}
    return hmac.digest(key, dumps(ids), "sha256").hex()


def matches(held: SubjectKey, expected: str) -> bool:
    """Whether a commitment is the one of these ids under this key."""
    return hmac.compare_digest(commitment(held.key, held.subject_ids, held.stay_ids), expected)


def annex_document(request_id: str, key: bytes, destroy_after: date, details: Mapping[str, Any]) -> bytes:
    """The annex of a request as canonical JSON: strings and integers, no id of a patient or stay.

    ``details`` are what the receipt may not say, such as exact certificates, paths and sizes of changes.
    """
    document = {"commitment_key": key.hex(), "destroy_after": destroy_after.isoformat()}
    return dumps({**document, "details": dict(details), "request_id": request_id})


def subject_key_document(annex: bytes) -> bytes:
    """The part of an annex that may be handed to the requester: the key of the commitment and the request's id."""
    document = _read_annex(annex, "annex")
    return dumps({name: document[name] for name in _KEY_FIELDS})


def annex_details(annex: bytes) -> dict[str, Any]:
    """What an annex holds beside the key: for its owner alone."""
    details = _read_annex(annex, "annex")["details"]
    if not isinstance(details, dict):
        raise ReceiptError("annex: details are not a mapping; it was changed")
    return details


def write_annex(path: Path, content: bytes) -> None:
    """Write an annex with mode 0600, whole and flushed; the same one may be written again."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_whole(path, content, PRIVATE, replace=True)


def destroy_expired(directory: Path, today: date) -> int:
    """Remove the annexes whose destruction date has passed; returns how many.

    What is left of their receipts can be linked to nobody.  Blocks of the disk are not overwritten.  Raises
    ReceiptError for a damaged one when the others are done.
    """
    destroyed, damaged = 0, None
    for file in sorted(directory.glob("*.json")):
        try:
            if _destroy_after(file) < today:
                file.unlink(missing_ok=True)
                destroyed += 1
        except ReceiptError as failure:
            damaged = failure
    if destroyed:
        sync_directory(directory)
    if damaged is not None:
        raise damaged
    return destroyed


def read_subject_key(content: bytes, what: str) -> SubjectKey:
    """The key of a commitment from an annex, or from a key file, which may hold the ids as decimal strings.

    Raises ReceiptError, without a value, for another file.
    """
    document = loads(content, what)
    known = set(document) if isinstance(document, dict) else set()
    expected = _ANNEX_FIELDS if "details" in known else (*_KEY_FIELDS, *(known & set(_ID_FIELDS)))
    fields = with_fields(document, expected, what)
    if not isinstance(fields["request_id"], str):
        raise ReceiptError(f"{what}: request_id is not a text; it was changed")
    key = from_hex(fields["commitment_key"], COMMITMENT_KEY_BYTES, f"{what}: commitment_key")
    return SubjectKey(fields["request_id"], key, *(_ids(fields.get(name, []), what) for name in reversed(_ID_FIELDS)))


def _read_annex(content: bytes, what: str) -> dict[str, Any]:
    return with_fields(loads(content, what), _ANNEX_FIELDS, what)


def _destroy_after(file: Path) -> date:
    what = f"annex {file.name}"
    try:
        return date.fromisoformat(_read_annex(file.read_bytes(), what)["destroy_after"])
    except (ValueError, TypeError):
        raise ReceiptError(f"{what}: is damaged; look at it and remove it by hand when its time has come") from None


def _texts(ids: Iterable[int]) -> list[str]:
    return [str(number) for number in sorted(set(ids))]


def _ids(texts: Any, what: str) -> tuple[int, ...]:
    if not isinstance(texts, list) or not all(isinstance(text, str) and text.isdecimal() for text in texts):
        raise ReceiptError(f"{what}: ids are not a list of decimal strings; correct it")
    return tuple(int(text) for text in texts)

"""Canonical JSON, read strictly: one document has one form, and every other form of it is refused."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterable
from typing import Any

import rfc8785

from reports.receipts.errors import ReceiptError


def dumps(document: Any) -> bytes:
    """RFC 8785 bytes of a document of mappings, lists, strings, integers, booleans and None.

    Raises ReceiptError for a float, whose text would depend on who writes it, and for anything that is no JSON.
    """
    _refuse_floats(document)
    try:
        return rfc8785.dumps(document)
    except (ValueError, TypeError):
        raise ReceiptError(
            "receipt: holds a value that canonical JSON cannot carry; use strings and integers"
        ) from None


def loads(content: bytes, what: str) -> Any:
    """The document whose canonical bytes these are; ``what`` begins the line of a refusal.

    Raises ReceiptError for bytes that are not JSON, repeat a key, hold a float or differ in any byte, white space
    included, from the canonical form of what they say.
    """
    try:
        document = json.loads(
            content.decode("utf-8"), object_pairs_hook=_unique, parse_float=_refused, parse_constant=_refused
        )
        canonical = dumps(document)
    except (ValueError, RecursionError):
        raise ReceiptError(
            f"{what}: is not canonical JSON of strings and integers; it was damaged or changed"
        ) from None
    if canonical != content:
        raise ReceiptError(f"{what}: is not in canonical form (RFC 8785), byte for byte; it was changed")
    return document


def with_fields(document: Any, names: Iterable[str], what: str) -> dict[str, Any]:
    """``document`` as a mapping with exactly these fields; ReceiptError otherwise."""
    if not isinstance(document, dict) or set(document) != set(names):
        raise ReceiptError(f"{what}: has not exactly the fields {', '.join(sorted(names))}; it was changed")
    return document


def from_hex(text: Any, length: int, what: str) -> bytes:
    """``length`` bytes from lower-case hexadecimal digits; ReceiptError for any other form."""
    if not isinstance(text, str) or not re.fullmatch(rf"[0-9a-f]{{{2 * length}}}", text):
        raise ReceiptError(f"{what}: is not {2 * length} lower-case hexadecimal digits; it was changed")
    return bytes.fromhex(text)


def to_base64(content: bytes) -> str:
    """Base64 with padding (RFC 4648, section 4)."""
    return base64.b64encode(content).decode("ascii")


def from_base64(text: Any, what: str) -> bytes:
    """The bytes of canonical base64; ReceiptError for other letters, padding or left-over bits."""
    try:
        content = base64.b64decode(text.encode("ascii"), validate=True)
    except (AttributeError, UnicodeEncodeError, binascii.Error):
        raise ReceiptError(f"{what}: is not base64; it was changed") from None
    if to_base64(content) != text:
        raise ReceiptError(f"{what}: is not canonical base64; it was changed")
    return content


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({name for name, _ in pairs}) < len(pairs):
        raise ValueError("a key twice")
    return dict(pairs)


def _refused(text: str) -> Any:
    raise ValueError("a float")


def _refuse_floats(document: Any) -> None:
    if isinstance(document, float):
        raise ReceiptError("receipt: holds a float; write it as a decimal string")
    parts = document.values() if isinstance(document, dict) else document if isinstance(document, (list, tuple)) else ()
    for part in parts:
        _refuse_floats(part)

"""The state manifest: the files of a run with their digests, and a nonce that makes its own digest no guess."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass

from reports.receipts.canonical import dumps, from_hex, loads, with_fields
from reports.receipts.errors import ReceiptError

NONCE_BYTES = 32

_DIGEST_BYTES = 32
_NAME = re.compile(r"[A-Za-z0-9_.=-]+(/[A-Za-z0-9_.=-]+)*")


@dataclass(frozen=True)
class State:
    """SHA-256 (hex) by path inside the run, and the nonce (hex)."""

    nonce: str
    files: Mapping[str, str]


def build_state(files: Mapping[str, str], nonce: str | None = None) -> bytes:
    """The manifest as canonical JSON; the nonce is fresh unless one is given."""
    return dumps({"files": dict(files), "nonce": nonce or secrets.token_bytes(NONCE_BYTES).hex()})


def read_state(content: bytes, what: str = "state.json") -> State:
    """The manifest of these bytes; ReceiptError for a form that `build_state` does not write."""
    document = with_fields(loads(content, what), ("files", "nonce"), what)
    from_hex(document["nonce"], NONCE_BYTES, f"{what}: nonce")
    if not isinstance(document["files"], dict):
        raise ReceiptError(f"{what}: files is not a mapping; it was changed")
    for name, digest in document["files"].items():
        if not _NAME.fullmatch(name) or ".." in name.split("/"):
            raise ReceiptError(f"{what}: names a file that no run holds; it was changed")
        from_hex(digest, _DIGEST_BYTES, f"{what}: {name}")
    return State(document["nonce"], document["files"])


def state_digest(content: bytes) -> str:
    """SHA-256 (hex) of the manifest's bytes: what a receipt is about."""
    return hashlib.sha256(content).hexdigest()

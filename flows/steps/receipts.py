"""Receipts for people: in plain words, and as a page."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from flows.errors import CannotDecide, FlowError
from flows.run.private import write_private
from flows.run.publish import write_atomic
from flows.steps.verify import Trust, trust, verify
from reports.receipts.annex import subject_key_document
from reports.receipts.page import render_receipt
from reports.receipts.words import plain_words


def shown(file: Path) -> tuple[dict[str, Any], str]:
    """What a receipt says, as JSON values and as text; FlowError for one that is not consistent in itself."""
    bundle = verify(_a_file(file), Trust({})).last
    document = {**asdict(bundle.facts), "checkpoint": bundle.checkpoint.line, "index": bundle.index}
    return document, plain_words(bundle)


def export(file: Path, out: Path, public_key: Path | None, state: Path | None) -> bool:
    """Write the page of a receipt; returns whether its keys were checked against known ones.

    Raises FlowError, and writes nothing, for a receipt that does not match.
    """
    relied_on = trust(public_key, state, None)
    bundle = verify(_a_file(file), relied_on).last
    checked = bool(relied_on.keys)
    try:
        write_atomic(out, render_receipt(bundle, checked=checked).encode())
    except OSError as failure:
        raise FlowError(f"page {out}: cannot be written ({failure.strerror}); name another --out") from None
    return checked


def hand_over(file: Path, out: Path, state: Path | None) -> None:
    """Write the key with which the requester can check that a receipt is about them, from the site's annex.

    Raises CannotDecide where the annex is not there, or was destroyed when its date came.
    """
    request_id = verify(_a_file(file), Trust({})).last.facts.request.request_id
    annex = state / "annexes" / f"{request_id}.json" if state is not None else None
    if annex is None or not annex.is_file():
        raise CannotDecide(
            f"subject key {out}: the annex of this receipt is not in the state directory, or was destroyed; "
            "name the site's own with --state-dir"
        )
    try:
        write_private(out, subject_key_document(annex.read_bytes()), replace=True)
    except OSError as failure:
        raise FlowError(f"subject key {out}: cannot be written ({failure.strerror}); name another file") from None


def _a_file(file: Path) -> Path:
    if file.is_dir():
        raise CannotDecide(f"{file}: is a directory; name one receipt, such as {file}/receipts/REQUEST.json")
    return file

"""What the report tells of the deletions that a run went through, from its receipts."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from flows.run.layout import RunLayout
from reports.receipts.bundle import Bundle, read_bundle


def deletion_rows(layout: RunLayout) -> list[dict[str, Any]]:
    """One row a receipt, in order of the ledger, each consistent in itself; no time of day and no count of a patient.

    Raises ReceiptError for a receipt that was changed.
    """
    files = sorted(layout.receipts.glob("*.json"))
    bundles = sorted((read_bundle(file.read_bytes(), f"receipt {file.name}") for file in files), key=lambda b: b.index)
    return [_row(bundle) for bundle in bundles]


def _row(bundle: Bundle) -> dict[str, Any]:
    facts = bundle.facts
    waited = datetime.fromisoformat(facts.completed_at) - datetime.fromisoformat(facts.request.received_at)
    certificates = [memory.worst_certificate for memory in facts.memories if memory.kind == "wards"]
    return {
        "request": facts.request.request_id,
        "outcome": facts.outcome,
        "days": max(waited.days, 0),
        "attempted": sum(memory.attempted for memory in facts.memories),
        "completed": sum(memory.completed for memory in facts.memories),
        "certificate": certificates[0] if certificates else None,
        "not_covered": list(facts.not_covered),
    }

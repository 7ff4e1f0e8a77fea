"""A site with keys and a ledger, and receipts to attack."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from reports.receipts.annex import commitment, new_commitment_key
from reports.receipts.bundle import make_bundle
from reports.receipts.envelope import sign_envelope
from reports.receipts.keys import KeyDirectory, Signer
from reports.receipts.ledger import Ledger
from reports.receipts.moment import moment
from reports.receipts.state import build_state, state_digest
from reports.receipts.statement import (
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

RUN_ID = "00112233445566aa"


@dataclass(frozen=True)
class Sample:
    """A site on disk."""

    keys: KeyDirectory
    ledger: Ledger

    @classmethod
    def at(cls, path: Path, roles: tuple[Any, ...] = ("operator",)) -> Sample:
        made = cls(KeyDirectory(path / "keys"), Ledger(path / "ledger"))
        for role in roles:
            made.keys.new(role)
        return made

    def signed(self, facts: Any, *roles: Any) -> bytes:
        used = [self.keys.signer(role) for role in roles or ("operator",)]
        return sign_envelope(build_statement(replace(facts, signers=signers(used))), used)

    def receipt(self, number: int = 0, *roles: Any, **changes: Any) -> bytes:
        """Append a receipt and return its file."""
        changes = {"request": request(f"request-{number:04d}")} | changes
        entry = self.signed(replace(facts(self.keys.signer()), **changes), *roles)
        at = self.ledger.append(entry, self.keys.signer())
        return make_bundle(self.ledger, at.index, self.keys.keys())


def request(request_id: str = "request-0000") -> RequestFacts:
    return RequestFacts(
        request_id,
        "2026-01-31T09:00:00Z",
        "consent withdrawn",
        "patient",
        "patient",
        "data steward",
        "2026-03-02T09:00:00Z",
    )


def ward_facts(worst: float = 3e-12) -> MemoryFacts:
    cap, tolerance = decimal(1 / 48), decimal(1e-9)
    reference = "retained-key refit at the same C"
    return MemoryFacts(
        "wards", 2, 1, {"interrupted": 1}, reference, "maintained", cap, tolerance, within(worst, 1e-9), "not measured"
    )


def facts(signer: Signer, ids: tuple[int, ...] = (10_000_032,), worst: float = 3e-12) -> ReceiptFacts:
    return ReceiptFacts(
        state_digest=state_digest(build_state({"results/retention.json": "ab" * 32})),
        run_id=RUN_ID,
        request=request(),
        outcome="deleted",
        commitment=commitment(new_commitment_key(), ids),
        actions=(Action("tokens", "rows removed"), Action("wards", "maintained deletion")),
        memories=(ward_facts(worst),),
        checks=("tables", "memory states"),
        not_covered=("copies elsewhere", "media remanence"),
        environment={"numpy": "2.4.1", "python": "3.11.2"},
        completed_at=moment(),
        signers=signers([signer]),
    )


def intent(signer: Signer) -> IntentFacts:
    made = facts(signer)
    return IntentFacts(made.state_digest, RUN_ID, made.request, made.commitment, moment(), made.signers)

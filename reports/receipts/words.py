"""A receipt in plain words, for the terminal and for the page that a requester gets."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

from reports.receipts import vocabulary
from reports.receipts.bundle import Bundle
from reports.receipts.keys import fingerprint
from reports.receipts.statement import NO_CERTIFICATE, NOT_MEASURED, MemoryFacts

_WIDTH = 96

DOES_NOT_SAY = (
    "It does not say who was deleted: only somebody who holds the commitment's key and the id can check that.",
    "It cannot show that no copy exists elsewhere, and does not claim to.",
    "It does not say that a law is complied with; it says what was checked and what was not.",
)


@dataclass(frozen=True)
class Section:
    """A heading with sentences, pairs of a name and a text, or both."""

    heading: str
    sentences: tuple[str, ...] = ()
    pairs: tuple[tuple[str, str], ...] = ()


def title(bundle: Bundle) -> str:
    """What the receipt is, in one line."""
    return f"Receipt of the deletion request {bundle.facts.request.request_id}"


def sections(bundle: Bundle) -> list[Section]:
    """The whole receipt, field by field, in the order in which a requester asks."""
    facts = bundle.facts
    return [
        Section("What happened", (vocabulary.OUTCOMES[facts.outcome],)),
        Section("The request", pairs=tuple(_request(bundle))),
        Section("What was done", pairs=tuple((_named(a.store), vocabulary.METHODS[a.method]) for a in facts.actions)),
        *(Section(f"Memories: {vocabulary.STORES[row.kind]}", pairs=tuple(_memory(row))) for row in facts.memories),
        Section("What was checked afterwards", tuple(vocabulary.CHECKS[name] for name in facts.checks)),
        Section("What this does not cover", tuple(vocabulary.NOT_COVERED[name] for name in facts.not_covered)),
        Section("What a receipt does not say", DOES_NOT_SAY),
        Section("How to check it", _checking(bundle), tuple(_evidence(bundle))),
        Section("Made with", pairs=tuple(sorted(facts.environment.items()))),
    ]


def plain_words(bundle: Bundle) -> str:
    """The receipt as text of at most 96 columns; it does not say whether the signing keys are the operator's."""
    lines = [title(bundle), ""]
    for section in sections(bundle):
        if section.sentences or section.pairs:
            lines += [section.heading, *_lines(section), ""]
    return "\n".join(lines).rstrip()


def _lines(section: Section) -> Iterator[str]:
    for sentence in section.sentences:
        yield from textwrap.wrap(sentence, _WIDTH, initial_indent="  ", subsequent_indent="  ")
    for name, text in section.pairs:
        yield from textwrap.wrap(f"{name}: {text}", _WIDTH, initial_indent="  ", subsequent_indent="      ")


def _request(bundle: Bundle) -> Iterator[tuple[str, str]]:
    facts = bundle.facts
    yield "request", facts.request.request_id
    yield "asked for by", facts.request.requester_role
    yield "approved by", facts.request.approver
    yield "ground", facts.request.basis
    yield "scope", facts.request.scope
    yield "received", facts.request.received_at
    yield "due", facts.request.due_at
    yield "completed", facts.completed_at


def _named(store: str) -> str:
    return vocabulary.STORES[store]


def _memory(row: MemoryFacts) -> Iterator[tuple[str, str]]:
    failed = ", ".join(f"{count} because {vocabulary.FAILURES[reason]}" for reason, count in row.failures.items())
    yield "passes", f"{row.completed} of {row.attempted} completed" + (f"; {failed}" if failed else "")
    yield "equals", vocabulary.REFERENCES[row.reference]
    yield "computed", vocabulary.ARITHMETIC[row.arithmetic_path]
    if row.C != NO_CERTIFICATE:
        yield "cap C", row.C
    yield "tolerance", "none: bit-identical" if row.tolerance == "0" else row.tolerance
    certificate = "none is needed" if row.worst_certificate == NO_CERTIFICATE else f"at most {row.worst_certificate}"
    yield "worst certificate", certificate
    measured = row.measured_discrepancy
    yield "measured against a fresh refit", measured if measured == NOT_MEASURED else f"at most {measured}"


def _checking(bundle: Bundle) -> tuple[str, ...]:
    return (
        "Ask the operator for the public key by another way than this file, compare its fingerprint with the one "
        "below, and run: icu-memory verify FILE --public-key KEY. No network is needed.",
        f"The receipt is entry {bundle.index} of a ledger of {bundle.checkpoint.size} entries. Keep the checkpoint "
        "line: with it, a later look at the ledger shows whether anything before it was changed or dropped.",
    )


def _evidence(bundle: Bundle) -> Iterator[tuple[str, str]]:
    for row in bundle.facts.signers:
        yield f"key of the {row.role}", fingerprint(row.key_id)
    yield "state of the run", f"SHA-256 {bundle.facts.state_digest} of its state.json"
    yield "commitment", bundle.facts.commitment
    yield "run", bundle.facts.run_id
    yield "checkpoint", bundle.checkpoint.line

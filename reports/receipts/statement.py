"""What a receipt states: an in-toto Statement v1 about one deletion, with a closed set of fields."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from decimal import Decimal, InvalidOperation
from typing import Any

from reports.receipts import vocabulary
from reports.receipts.canonical import dumps, from_hex, loads, with_fields
from reports.receipts.errors import ReceiptError
from reports.receipts.keys import KEY_ID_BYTES, ROLES, Signer
from reports.receipts.moment import checked_moment

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
RECEIPT_TYPE = "urn:icu-stream-memory:deletion-receipt:1"
INTENT_TYPE = "urn:icu-stream-memory:deletion-intent:1"
SUBJECT = "state.json"
NOT_MEASURED = "not measured"
NO_CERTIFICATE = "none"

_REQUEST_ID = re.compile(r"[a-z0-9][a-z0-9-]{7,63}")
_RUN_ID = re.compile(r"[0-9a-f]{16}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?Z")
_VERSION = re.compile(r"\d{1,4}(\.\w{1,12}){0,4}(\+\w{1,12})?|not installed")
_DECIMAL = re.compile(r"(0|[1-9]\d*)(\.\d+)?(e-?[1-9]\d*)?")
_DIGEST_LIKE = re.compile(r"[0-9a-fA-F]{32,}")
_LONGEST = 500
_MOST_PASSES = 9
_SHORTEST_ID = 5
_DIGEST_BYTES = 32


@dataclass(frozen=True)
class RequestFacts:
    """The request without whom it is about, as its file says it; approver and role name staff, never a patient."""

    request_id: str
    received_at: str
    basis: str
    scope: str
    requester_role: str
    approver: str
    due_at: str

    def __post_init__(self) -> None:
        _refuse_unless(_REQUEST_ID.fullmatch(self.request_id), "request_id")
        _refuse_unless(self.scope in ("patient", "stay", "release retraction"), "scope")
        for name in ("received_at", "due_at"):
            _refuse_unless(_TIME.fullmatch(getattr(self, name)), name)
        for name in ("basis", "requester_role", "approver"):
            text = getattr(self, name)
            _refuse_unless(0 < len(text) <= _LONGEST and text.isprintable(), name)
            _refuse_unless(not _DIGEST_LIKE.search(text), name)


@dataclass(frozen=True)
class Action:
    """What was done with one kind of store; the same for whoever is deleted, hence without a count."""

    store: str
    method: str

    def __post_init__(self) -> None:
        _refuse_unless(self.store in vocabulary.STORES, "store")
        _refuse_unless(self.method in vocabulary.METHODS, "method")


@dataclass(frozen=True)
class MemoryFacts:
    """How one kind of memory was treated, in passes over the kind: how many memories a patient had is not told.

    Attributes:
        kind: wards, svdd, vla or nc01.
        attempted, completed: passes; attempted is completed and all failures together, 9 at most.
        failures: reasons with how often; a pass that failed was repeated or the deletion would have no receipt.
        reference: what the state after the deletion equals.
        arithmetic_path: how it was computed; which of the repairs a single ward needed stays in the annex.
        C: cap of the support-vector memories as a decimal, "none" elsewhere.
        tolerance: largest error of the score that counts as completed, a decimal; "0" where states are identical.
        worst_certificate: the tolerance when the worst certificate is within it, "none" where there is none.  The exact
            figure would tell whoever can compute it for every candidate who was deleted; it is in the annex.
        measured_discrepancy: the tolerance when a fresh refit was within it, or "not measured".
    """

    kind: str
    attempted: int
    completed: int
    failures: Mapping[str, int]
    reference: str
    arithmetic_path: str
    C: str
    tolerance: str
    worst_certificate: str
    measured_discrepancy: str

    def __post_init__(self) -> None:
        _refuse_unless(self.kind in vocabulary.MEMORIES, "kind")
        _refuse_unless(set(self.failures) <= set(vocabulary.FAILURES), "failures")
        counts = [self.attempted, self.completed, *self.failures.values()]
        _refuse_unless(all(type(count) is int and 0 <= count <= _MOST_PASSES for count in counts), "attempted")
        _refuse_unless(self.attempted == self.completed + sum(self.failures.values()), "attempted")
        _refuse_unless(self.reference in vocabulary.REFERENCES, "reference")
        _refuse_unless(self.arithmetic_path in vocabulary.ARITHMETIC, "arithmetic_path")
        _refuse_unless(self.C == NO_CERTIFICATE or _DECIMAL.fullmatch(self.C), "C")
        _refuse_unless(_DECIMAL.fullmatch(self.tolerance), "tolerance")
        _refuse_unless(self.worst_certificate in (self.tolerance, NO_CERTIFICATE), "worst_certificate")
        _refuse_unless(self.measured_discrepancy in (self.tolerance, NOT_MEASURED), "measured_discrepancy")


@dataclass(frozen=True)
class SignerFacts:
    """Who signs: the key and its role, so that a signature cannot be left out or change its role."""

    key_id: str
    role: str

    def __post_init__(self) -> None:
        from_hex(self.key_id, KEY_ID_BYTES, "receipt: key_id")
        _refuse_unless(self.role in ROLES, "role")


@dataclass(frozen=True)
class ReceiptFacts:
    """Everything a receipt says.

    Attributes:
        state_digest: SHA-256 (hex) of the run's state manifest after the deletion; the only file digest, and no guess,
            since the manifest holds a fresh nonce.
        run_id: the run's random id in the registry of the site, so that no receipt passes for one of another run.
        request: the request without identity.
        outcome: "deleted" or "not held".
        commitment: HMAC-SHA256 (hex) of the ids under a fresh key, see `reports.receipts.annex`.
        actions: by store kind and method.
        memories: by kind.
        checks: names of the negative checks that passed; there is no receipt where one failed.
        not_covered: names of what the deletion did not reach.
        environment: versions of what decides the bytes.
        completed_at: the whole minute in which the receipt was signed.
        signers: one or two, in order of key id.
    """

    state_digest: str
    run_id: str
    request: RequestFacts
    outcome: str
    commitment: str
    actions: tuple[Action, ...]
    memories: tuple[MemoryFacts, ...]
    checks: tuple[str, ...]
    not_covered: tuple[str, ...]
    environment: Mapping[str, str]
    completed_at: str
    signers: tuple[SignerFacts, ...]

    def __post_init__(self) -> None:
        _refuse_common(self.state_digest, self.run_id, self.commitment, self.completed_at, self.signers)
        _refuse_unless(self.outcome in vocabulary.OUTCOMES, "outcome")
        _refuse_unless(set(self.checks) <= set(vocabulary.CHECKS) and self.checks, "checks")
        _refuse_unless(set(self.not_covered) <= set(vocabulary.NOT_COVERED), "not_covered")
        for lists in (self.checks, self.not_covered, [row.kind for row in self.memories], self.actions):
            _refuse_unless(len(set(lists)) == len(lists), "a list that repeats an entry")
        _refuse_unless(self.outcome == "not held" or self.actions, "actions")
        _refuse_unless(all(row.completed for row in self.memories), "completed")
        for name, text in self.environment.items():
            _refuse_unless(name in vocabulary.ENVIRONMENT and _VERSION.fullmatch(text), "environment")


@dataclass(frozen=True)
class IntentFacts:
    """What is written before a deletion is published: from here it is only ever completed.

    ``state_digest`` is that of the state manifest that is about to be published.
    """

    state_digest: str
    run_id: str
    request: RequestFacts
    commitment: str
    recorded_at: str
    signers: tuple[SignerFacts, ...]

    def __post_init__(self) -> None:
        _refuse_common(self.state_digest, self.run_id, self.commitment, self.recorded_at, self.signers)


Facts = ReceiptFacts | IntentFacts
_TYPES: dict[str, type[ReceiptFacts] | type[IntentFacts]] = {RECEIPT_TYPE: ReceiptFacts, INTENT_TYPE: IntentFacts}


def build_statement(facts: Facts, never: Iterable[int] = ()) -> bytes:
    """The statement as canonical JSON; ``never`` are ids that no text of it may hold.

    Raises ReceiptError, which repeats none, where one does.
    """
    predicate = asdict(facts)
    digest = predicate.pop("state_digest")
    _refuse_ids(predicate, {str(number) for number in never})
    return dumps({
        "_type": STATEMENT_TYPE,
        "predicate": predicate,
        "predicateType": RECEIPT_TYPE if isinstance(facts, ReceiptFacts) else INTENT_TYPE,
        "subject": [{"digest": {"sha256": digest}, "name": SUBJECT}],
    })  # fmt: skip


def read_statement(payload: bytes, what: str) -> Facts:
    """What a statement says; ReceiptError for a field too many or too few, of another form or out of the vocabulary."""
    document = with_fields(loads(payload, what), ("_type", "predicate", "predicateType", "subject"), what)
    made = _TYPES.get(document["predicateType"]) if isinstance(document["predicateType"], str) else None
    if document["_type"] != STATEMENT_TYPE or made is None:
        raise ReceiptError(
            f"{what}: is no statement about a deletion that this version reads; use the one that wrote it"
        )
    try:
        digest = document["subject"][0]["digest"]["sha256"]
        facts: Facts = _facts(made, {**document["predicate"], "state_digest": digest}, what)
        same = build_statement(facts) == payload
    except ReceiptError as failure:
        raise ReceiptError(f"{what}: {failure}") from None
    except (LookupError, TypeError, AttributeError, ValueError):
        raise ReceiptError(f"{what}: has a field of another form; it was changed") from None
    if not same:
        raise ReceiptError(f"{what}: has a field that no receipt has; it was changed")
    return facts


def signers(keys: Collection[Signer]) -> tuple[SignerFacts, ...]:
    """The signers' part of the facts, in order."""
    return tuple(SignerFacts(key.key_id, key.role) for key in sorted(keys, key=lambda key: key.key_id))


def decimal(value: float) -> str:
    """A non-negative number as the shortest decimal string that means the same float64, such as "1e-9"."""
    try:
        _, digits, exponent = Decimal(repr(float(value))).normalize().as_tuple()
    except InvalidOperation:
        raise ReceiptError("receipt: a number is not finite") from None
    if not isinstance(exponent, int) or value < 0:
        raise ReceiptError("receipt: a number is negative or not finite")
    text = "".join(map(str, digits))
    power = exponent + len(text) - 1
    if not -4 <= power < 16:
        return text[0] + (f".{text[1:]}" if text[1:] else "") + f"e{power}"
    return format(Decimal((0, digits, exponent)), "f")


def within(value: float, tolerance: float) -> str:
    """How a receipt tells a measured value: the tolerance it is within; ReceiptError above it.

    What cannot be told apart among candidates says nothing of who was deleted; the value itself belongs in the annex.
    """
    if not value <= tolerance:
        raise ReceiptError("receipt: a certificate or discrepancy is above its tolerance; the deletion is not complete")
    return decimal(tolerance)


def _facts(made: Any, document: Any, what: str) -> Any:
    """A dataclass of facts from its JSON form, nested ones too."""
    known = {field.name for field in fields(made)}
    given = dict(with_fields(document, known, what))
    nested = {"request": RequestFacts, "actions": Action, "memories": MemoryFacts, "signers": SignerFacts}
    for name, value in given.items():
        if isinstance(value, list):
            given[name] = tuple(_facts(nested[name], row, what) if name in nested else row for row in value)
        elif name == "request":
            given[name] = _facts(RequestFacts, value, what)
    return made(**given)


def _refuse_common(digest: str, run_id: str, commitment: str, at: str, signing: tuple[SignerFacts, ...]) -> None:
    from_hex(digest, _DIGEST_BYTES, "receipt: state digest")
    from_hex(commitment, _DIGEST_BYTES, "receipt: commitment")
    _refuse_unless(_RUN_ID.fullmatch(run_id), "run_id")
    checked_moment(at, "receipt: time")
    ids = [row.key_id for row in signing]
    _refuse_unless(ids and ids == sorted(set(ids)), "signers")


def _refuse_unless(good: object, name: str) -> None:
    if not good:
        raise ReceiptError(f"receipt: {name}: is not what a receipt may hold there")


def _refuse_ids(part: Any, telling: set[str]) -> None:
    if not telling:
        return
    if isinstance(part, Mapping):
        part = [*part, *part.values()]
    if isinstance(part, (list, tuple)):
        for piece in part:
            _refuse_ids(piece, telling)
    elif isinstance(part, str) and not re.fullmatch(r"[0-9a-f]{16}|[0-9a-f]{64}", part):
        runs = re.findall(r"\d+", part)
        if any(run in telling or any(len(n) >= _SHORTEST_ID and n in run for n in telling) for run in runs):
            raise ReceiptError("receipt: a text of the request holds an id of the request; choose another text")

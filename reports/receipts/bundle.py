"""The receipt file: envelope, place in the ledger, checkpoint and the public keys that made the signatures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from reports.receipts.canonical import dumps, from_hex, loads, with_fields
from reports.receipts.envelope import read_envelope
from reports.receipts.errors import ReceiptError
from reports.receipts.keys import PublicKey, embedded, read_embedded, used_keys
from reports.receipts.ledger import Checkpoint, Ledger, read_checkpoint, read_entry, refuse_inconsistent
from reports.receipts.statement import ReceiptFacts
from reports.receipts.tree import includes, leaf_hash

_FIELDS = ("checkpoint", "envelope", "index", "keys", "proof")
_HASH_BYTES = 32


@dataclass(frozen=True)
class Bundle:
    """A receipt file that is consistent in itself: its signatures are those of the keys it carries.

    Whether these keys are the operator's is for whoever knows them; see `check_bundle`.
    """

    facts: ReceiptFacts
    entry: bytes
    index: int
    proof: tuple[bytes, ...]
    checkpoint: Checkpoint
    keys: Mapping[str, PublicKey]

    @property
    def key_ids(self) -> list[str]:
        """Ids of the keys that signed statement or checkpoint."""
        return sorted(self.keys)


def make_bundle(ledger: Ledger, index: int, keys: Mapping[str, PublicKey]) -> bytes:
    """The receipt file of a ledger's entry as canonical JSON; it proves the entry against the current checkpoint.

    Raises ReceiptError for an entry that is no receipt and for a key that is not known.
    """
    entry, checkpoint = ledger.entry(index), ledger.checkpoint()
    if checkpoint is None:
        raise ReceiptError(f"ledger {ledger.path}: is empty; no receipt can be made of it")
    key_ids = [*read_envelope(entry, "receipt").signatures, checkpoint.key_id]
    return dumps({
        "checkpoint": checkpoint.line,
        "envelope": loads(entry, "receipt"),
        "index": index,
        "keys": embedded(used_keys(key_ids, keys)),
        "proof": [step.hex() for step in ledger.inclusion(index)],
    })  # fmt: skip


def read_bundle(content: bytes, what: str = "receipt") -> Bundle:
    """A receipt file, checked in itself: form to the byte, signatures, statement, place in the tree of its checkpoint.

    Raises ReceiptError naming the first thing that does not match.
    """
    document = with_fields(loads(content, what), _FIELDS, what)
    keys = read_embedded(document["keys"], f"{what}: keys")
    entry = dumps(document["envelope"])
    signed = read_envelope(entry, f"{what}: envelope")
    signed.refuse_unsigned(keys, f"{what}: envelope")
    facts = read_entry(entry, f"{what}: statement")
    if not isinstance(facts, ReceiptFacts):
        raise ReceiptError(f"{what}: is the intent of a deletion, not its receipt; look for the receipt of the request")
    checkpoint = _checkpoint(document["checkpoint"], keys, f"{what}: checkpoint")
    if set(keys) != {*signed.signatures, checkpoint.key_id}:
        raise ReceiptError(f"{what}: keys: carries other keys than those that signed; it was changed")
    proof = _proof(document["proof"], f"{what}: proof")
    index = document["index"]
    if type(index) is not int or not includes(leaf_hash(entry), index, checkpoint.size, proof, checkpoint.root):
        raise ReceiptError(f"{what}: proof: does not place the statement in the tree of its checkpoint; it was changed")
    return Bundle(facts, entry, index, proof, checkpoint, keys)


def check_bundle(bundle: Bundle, keys: Mapping[str, PublicKey], ledger: Ledger | None = None) -> list[str]:
    """What does not match keys that are trusted, and a ledger where there is one; the first mismatch first.

    Looks at every key's identity, role and validity at the receipt's time, at the whole ledger, and that the receipt
    is the entry of its index in it.
    """
    found = [line for key_id in bundle.key_ids for line in _judged_key(key_id, bundle, keys)]
    if found or ledger is None:
        return found
    found = ledger.verify(keys, since=bundle.checkpoint)
    if not found and ledger.entry(bundle.index) != bundle.entry:
        found = [f"receipt: is not entry {bundle.index:04d} of the ledger {ledger.path}; it is of another ledger"]
    return found


def check_since(bundle: Bundle, since: Checkpoint, keys: Mapping[str, PublicKey]) -> list[str]:
    """What contradicts that the receipt's ledger grew from a checkpoint that was kept elsewhere.

    Raises ReceiptMissing where the two have different sizes and no ledger is here to prove it.
    """
    since.refuse_unsigned(keys, "checkpoint that was kept")
    if since.size > bundle.checkpoint.size and since.origin == bundle.checkpoint.origin:
        return refuse_inconsistent(bundle.checkpoint, since, [], "receipt")
    return refuse_inconsistent(since, bundle.checkpoint, [], "receipt")


def _judged_key(key_id: str, bundle: Bundle, keys: Mapping[str, PublicKey]) -> list[str]:
    key = keys.get(key_id)
    if key is None:
        return [f"receipt: is signed by the key {key_id[:16]}..., which is not the one that was given or pinned"]
    facts = bundle.facts
    roles = {row.key_id: row.role for row in facts.signers}
    if key.role is not None and roles.get(key_id, key.role) != key.role:
        return [f"receipt: the key {key_id[:16]}... signs as {roles[key_id]}, which is not its role"]
    if key_id in roles and not key.covers(facts.completed_at):
        return [f"receipt: the key {key_id[:16]}... was not valid at the receipt's time"]
    return []


def _checkpoint(line: object, keys: Mapping[str, PublicKey], what: str) -> Checkpoint:
    if not isinstance(line, str):
        raise ReceiptError(f"{what}: is not a line of text; it was changed")
    checkpoint = read_checkpoint(line, what)
    checkpoint.refuse_unsigned(keys, what)
    return checkpoint


def _proof(steps: object, what: str) -> tuple[bytes, ...]:
    if not isinstance(steps, list):
        raise ReceiptError(f"{what}: is not a list of hashes; it was changed")
    return tuple(from_hex(step, _HASH_BYTES, what) for step in steps)

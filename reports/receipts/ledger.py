"""The ledger: entries in plain files under a Merkle tree, with a signed checkpoint that is one line."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from reports.receipts.canonical import from_base64, from_hex, to_base64
from reports.receipts.envelope import read_envelope, signature_bytes
from reports.receipts.errors import ReceiptError, ReceiptMissing
from reports.receipts.files import PUBLIC, sweep, sync_directory, write_whole
from reports.receipts.keys import KEY_ID_BYTES, PublicKey, Signer
from reports.receipts.statement import Facts, ReceiptFacts, read_statement
from reports.receipts.tree import consistency_proof, inclusion_proof, is_consistent, leaf_hash, root_hash

_FORMAT = "icu-memory-ledger"
_ORIGIN_BYTES = 16
_HASH_BYTES = 32
_ENTRY = re.compile(r"(\d{4,})\.json")


@dataclass(frozen=True)
class Checkpoint:
    """The state of a ledger that its operator vouches for.

    Attributes:
        origin: random id of the ledger, so that one of another site never passes for it.
        size: entries.
        root: Merkle root over them, 32 bytes.
        key_id: the key that signed.
        signature: over the line up to and without the signature.
    """

    origin: str
    size: int
    root: bytes
    key_id: str
    signature: bytes

    @property
    def signed_text(self) -> str:
        """What the signature covers."""
        return f"{_FORMAT} {self.origin} {self.size} {to_base64(self.root)} {self.key_id}"

    @property
    def line(self) -> str:
        """The checkpoint as the one line to keep elsewhere."""
        return f"{self.signed_text} {to_base64(self.signature)}"

    def refuse_unsigned(self, keys: Mapping[str, PublicKey], what: str) -> None:
        """Raise ReceiptError unless the key that the line names is among ``keys`` and made its signature."""
        if self.key_id not in keys:
            raise ReceiptError(f"{what}: is signed by the key {self.key_id[:16]}..., which is not among the keys")
        if not keys[self.key_id].verifies(self.signature, self.signed_text.encode()):
            raise ReceiptError(f"{what}: its signature does not fit; it was changed")


@dataclass(frozen=True)
class Position:
    """Where an entry stands, and the line of the checkpoint that first covers it."""

    index: int
    checkpoint: str


class Ledger:
    """A ledger in ``path``: entries/NNNN.json and checkpoint; made when the first entry comes.

    One process at a time may append, which the lock of the site ensures; a second one is refused and changes nothing.
    Raises ReceiptError, one line, where the files contradict each other.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, entry: bytes, signer: Signer) -> Position:
        """Add an entry; when this returns, entry and checkpoint are on disk.

        An entry that a crash left without its checkpoint was never acknowledged: the same bytes are adopted, others
        replaced.  Raises ReceiptError, before anything is written, where former entries do not have the root that the
        checkpoint vouches for: signing that would hide it.
        """
        try:
            self._entries.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.recover()
            former = self.checkpoint()
            leaves = self._leaves(former)
            origin = former.origin if former else secrets.token_bytes(_ORIGIN_BYTES).hex()
            write_whole(self._file(len(leaves)), entry, PUBLIC, replace=False)
            made = _signed(origin, [*leaves, leaf_hash(entry)], signer)
            write_whole(self._checkpoint_file, (made.line + "\n").encode(), PUBLIC, replace=True)
        except OSError as failure:
            raise ReceiptError(
                f"ledger {self.path}: cannot be written ({failure.strerror}); see to it and repeat"
            ) from None
        return Position(len(leaves), made.line)

    def recover(self) -> None:
        """Remove what an append that was cut short has left: it was acknowledged to nobody."""
        for directory in (self.path, self._entries):
            if directory.is_dir():
                sweep(directory)
        torn = self._file(self.size)
        if torn.exists():
            torn.unlink()
            sync_directory(self._entries)

    @property
    def size(self) -> int:
        """Entries that the checkpoint covers."""
        checkpoint = self.checkpoint()
        return checkpoint.size if checkpoint else 0

    def checkpoint(self) -> Checkpoint | None:
        """The current checkpoint, None before the first entry; its signature is not judged here."""
        what = f"ledger {self.path}: checkpoint"
        try:
            text = self._checkpoint_file.read_bytes().decode("ascii")
        except FileNotFoundError:
            if self._entries.is_dir() and len(list(self._entries.glob("[0-9]*.json"))) > 1:
                raise ReceiptError(f"{what}: is missing; restore the ledger from its backup") from None
            return None
        except UnicodeDecodeError:
            raise ReceiptError(f"{what}: is not a line of text; restore the ledger from its backup") from None
        if not text.endswith("\n"):
            raise ReceiptError(f"{what}: is cut short; restore the ledger from its backup")
        return read_checkpoint(text[:-1], what)

    def entry(self, index: int) -> bytes:
        """The bytes of an entry that the checkpoint covers."""
        try:
            return self._file(index).read_bytes()
        except FileNotFoundError:
            raise ReceiptError(
                f"ledger {self.path}: entry {index:04d} is missing; restore it from its backup"
            ) from None

    def entries(self) -> list[bytes]:
        """All entries in order."""
        return [self.entry(index) for index in range(self.size)]

    def find(self, request_id: str, run_id: str) -> dict[str, Position]:
        """Where a request of a run stands: under "intent" and "receipt", the last of each; empty where it does not."""
        found: dict[str, Position] = {}
        checkpoint = self.checkpoint()
        for index, entry in enumerate(self.entries()):
            facts = read_entry(entry, f"ledger {self.path}: entry {index:04d}")
            if (facts.request.request_id, facts.run_id) == (request_id, run_id) and checkpoint is not None:
                kind = "receipt" if isinstance(facts, ReceiptFacts) else "intent"
                found[kind] = Position(index, checkpoint.line)
        return found

    def inclusion(self, index: int) -> list[bytes]:
        """Proof that entry ``index`` is in the tree of the current checkpoint."""
        return inclusion_proof(self._leaves(self.checkpoint()), index)

    def consistency(self, size: int) -> list[bytes]:
        """Proof that the current tree begins with the one of ``size`` entries."""
        return consistency_proof(self._leaves(self.checkpoint()), size)

    def verify(self, keys: Mapping[str, PublicKey], since: Checkpoint | None = None) -> list[str]:
        """Everything that does not match, the first mismatch first; empty where all does.

        Checked are the checkpoint's signature, every entry's form and signatures, that no file is missing or too many,
        the root, and that the ledger begins with the one of ``since``.
        """
        found: list[str] = []
        for check in (self._verify_checkpoint, self._verify_entries):
            found += check(keys)
        return found or self._verify_root() or (self._verify_since(keys, since) if since else [])

    def _verify_checkpoint(self, keys: Mapping[str, PublicKey]) -> list[str]:
        try:
            checkpoint = self.checkpoint()
            if checkpoint is None:
                return [f"ledger {self.path}: has no checkpoint; restore it from its backup"]
            checkpoint.refuse_unsigned(keys, f"ledger {self.path}: checkpoint")
        except ReceiptError as failure:
            return [str(failure)]
        return []

    def _verify_entries(self, keys: Mapping[str, PublicKey]) -> list[str]:
        found: list[str] = []
        try:
            size = self.size
        except ReceiptError:
            return []
        for index in range(size):
            what = f"ledger {self.path}: entry {index:04d}"
            try:
                entry = self.entry(index)
                read_entry(entry, what)
                read_envelope(entry, what).refuse_unsigned(keys, what)
            except ReceiptError as failure:
                found.append(str(failure))
        expected = {self._file(index).name for index in range(size)}
        others = _names(self._entries) - expected | _names(self.path) - {"entries", "checkpoint"}
        if others:
            found.append(
                f"ledger {self.path}: {len(others)} files that its checkpoint does not cover; they belong elsewhere"
            )
        return found

    def _verify_root(self) -> list[str]:
        try:
            self._leaves(self.checkpoint())
        except ReceiptError as failure:
            return [str(failure)]
        return []

    def _verify_since(self, keys: Mapping[str, PublicKey], since: Checkpoint) -> list[str]:
        now = self.checkpoint()
        if now is None:
            return [f"ledger {self.path}: has no checkpoint; restore it from its backup"]
        try:
            since.refuse_unsigned(keys, "checkpoint that was kept")
            proof = self.consistency(since.size) if 0 < since.size <= now.size else []
        except ReceiptError as failure:
            return [str(failure)]
        return refuse_inconsistent(since, now, proof, f"ledger {self.path}")

    def _leaves(self, checkpoint: Checkpoint | None) -> list[bytes]:
        """Leaf hashes of all entries that a checkpoint covers, after a look at their root."""
        leaves = [leaf_hash(self.entry(index)) for index in range(checkpoint.size if checkpoint else 0)]
        if checkpoint is not None and root_hash(leaves) != checkpoint.root:
            raise ReceiptError(
                f"ledger {self.path}: its {checkpoint.size} entries do not have the root that the checkpoint "
                "vouches for; an entry was dropped, moved or replaced"
            )
        return leaves

    @property
    def _entries(self) -> Path:
        return self.path / "entries"

    @property
    def _checkpoint_file(self) -> Path:
        return self.path / "checkpoint"

    def _file(self, index: int) -> Path:
        return self._entries / f"{index:04d}.json"


def read_checkpoint(line: str, what: str = "checkpoint") -> Checkpoint:
    """A checkpoint from its line; ReceiptError for any other form.  Its signature is not judged here."""
    parts = line.split(" ")
    if len(parts) != 6 or parts[0] != _FORMAT:
        raise ReceiptError(f"{what}: is not a line that begins with {_FORMAT}; give the line that a deletion printed")
    _, origin, size, root, key_id, signature = parts
    from_hex(origin, _ORIGIN_BYTES, f"{what}: origin")
    from_hex(key_id, KEY_ID_BYTES, f"{what}: key id")
    if not re.fullmatch(r"[1-9][0-9]{0,8}", size):
        raise ReceiptError(f"{what}: size is no number of entries; it was changed")
    digest = from_base64(root, f"{what}: root")
    if len(digest) != _HASH_BYTES:
        raise ReceiptError(f"{what}: root has not {_HASH_BYTES} bytes; it was changed")
    return Checkpoint(origin, int(size), digest, key_id, signature_bytes(signature, what))


def refuse_inconsistent(old: Checkpoint, new: Checkpoint, proof: list[bytes], what: str) -> list[str]:
    """What contradicts that one ledger grew from ``old`` to ``new``; empty where nothing does.

    Raises ReceiptMissing where only a proof is missing.
    """
    if old.origin != new.origin:
        return [f"{what}: is another ledger than the one of the checkpoint that was kept"]
    if old.size > new.size:
        return [f"{what}: has {new.size} entries, the checkpoint that was kept has {old.size}; it was cut or restored"]
    if old.size < new.size and not proof:
        raise ReceiptMissing(f"{what}: the entries since that checkpoint are not here; name the site with --state-dir")
    if not is_consistent(old.size, old.root, new.size, new.root, proof):
        return [f"{what}: does not begin with the entries of the checkpoint that was kept; it was forked or rewritten"]
    return []


def read_entry(entry: bytes, what: str) -> Facts:
    """What an entry states, its form checked to the byte and its signers those of its envelope."""
    signed = read_envelope(entry, what)
    facts = read_statement(signed.payload, what)
    if [row.key_id for row in facts.signers] != list(signed.signatures):
        raise ReceiptError(f"{what}: is not signed by the keys that it names; a signature was left out or added")
    return facts


def _names(directory: Path) -> set[str]:
    return {file.name for file in directory.iterdir()} if directory.is_dir() else set()


def _signed(origin: str, leaves: list[bytes], signer: Signer) -> Checkpoint:
    unsigned = Checkpoint(origin, len(leaves), root_hash(leaves), signer.key_id, b"")
    return Checkpoint(origin, len(leaves), unsigned.root, signer.key_id, signer.sign(unsigned.signed_text.encode()))

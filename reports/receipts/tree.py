"""Merkle trees of RFC 9162, section 2.1, over SHA-256: roots, inclusion and consistency proofs."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

EMPTY_ROOT = hashlib.sha256(b"").digest()


def leaf_hash(entry: bytes) -> bytes:
    """Hash of one entry; the prefix keeps leaves and nodes apart (RFC 9162, 2.1.1)."""
    return hashlib.sha256(b"\x00" + entry).digest()


def root_hash(leaves: Sequence[bytes]) -> bytes:
    """Root over leaf hashes, in order (RFC 9162, 2.1.1)."""
    if not leaves:
        return EMPTY_ROOT
    if len(leaves) == 1:
        return leaves[0]
    split = _split(len(leaves))
    return _node(root_hash(leaves[:split]), root_hash(leaves[split:]))


def inclusion_proof(leaves: Sequence[bytes], index: int) -> list[bytes]:
    """Hashes that lead from leaf ``index`` to the root, the leaf's neighbour first (RFC 9162, 2.1.3.1)."""
    if not 0 <= index < len(leaves):
        raise IndexError("no such leaf")
    if len(leaves) == 1:
        return []
    split = _split(len(leaves))
    if index < split:
        return [*inclusion_proof(leaves[:split], index), root_hash(leaves[split:])]
    return [*inclusion_proof(leaves[split:], index - split), root_hash(leaves[:split])]


def includes(leaf: bytes, index: int, size: int, proof: Sequence[bytes], root: bytes) -> bool:
    """Whether a proof shows that a leaf hash stands at ``index`` of the tree of ``size`` (RFC 9162, 2.1.3.2)."""
    if not 0 <= index < size:
        return False
    place, last, found = index, size - 1, leaf
    for step in proof:
        if last == 0:
            return False
        if place & 1 or place == last:
            found = _node(step, found)
            while not place & 1 and place:
                place, last = place >> 1, last >> 1
        else:
            found = _node(found, step)
        place, last = place >> 1, last >> 1
    return last == 0 and found == root


def consistency_proof(leaves: Sequence[bytes], size: int) -> list[bytes]:
    """Hashes that show the tree of the first ``size`` leaves to be a beginning of this one (RFC 9162, 2.1.4.1)."""
    if not 0 < size <= len(leaves):
        raise IndexError("no such tree")
    return _subproof(leaves, size, whole=True)


def is_consistent(size: int, root: bytes, new_size: int, new_root: bytes, proof: Sequence[bytes]) -> bool:
    """Whether a proof shows that a tree of ``new_size`` begins with the one of ``size`` (RFC 9162, 2.1.4.2)."""
    if size == new_size:
        return not proof and root == new_root
    if not 0 < size < new_size or not proof:
        return False
    steps = [root, *proof] if size & (size - 1) == 0 else list(proof)
    place, last = size - 1, new_size - 1
    while place & 1:
        place, last = place >> 1, last >> 1
    old = new = steps[0]
    for step in steps[1:]:
        if last == 0:
            return False
        if place & 1 or place == last:
            old, new = _node(step, old), _node(step, new)
            while not place & 1 and place:
                place, last = place >> 1, last >> 1
        else:
            new = _node(new, step)
        place, last = place >> 1, last >> 1
    return last == 0 and old == root and new == new_root


def _subproof(leaves: Sequence[bytes], size: int, *, whole: bool) -> list[bytes]:
    if size == len(leaves):
        return [] if whole else [root_hash(leaves)]
    split = _split(len(leaves))
    if size <= split:
        return [*_subproof(leaves[:split], size, whole=whole), root_hash(leaves[split:])]
    return [*_subproof(leaves[split:], size - split, whole=False), root_hash(leaves[:split])]


def _node(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\x01" + left + right).digest()


def _split(size: int) -> int:
    """The largest power of two below ``size``."""
    return 1 << (size - 1).bit_length() - 1

"""The Merkle tree against an implementation by others, and against proofs that were tampered with."""

from __future__ import annotations

import pymerkle
import pytest

from reports.receipts.tree import (
    EMPTY_ROOT,
    consistency_proof,
    includes,
    inclusion_proof,
    is_consistent,
    leaf_hash,
    root_hash,
)

SIZES = range(1, 34)
ENTRIES = [f"entry {index}".encode() for index in range(max(SIZES))]
LEAVES = [leaf_hash(entry) for entry in ENTRIES]


@pytest.fixture(scope="module")
def theirs():
    return pymerkle.InmemoryTree.init_from_entries(ENTRIES, algorithm="sha256")


def test_the_empty_tree_has_the_root_of_the_standard():
    # RFC 9162, 2.1.1: the hash of an empty list is the hash of an empty string.
    assert root_hash([]) == EMPTY_ROOT
    assert EMPTY_ROOT.hex() == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


@pytest.mark.parametrize("size", SIZES)
def test_roots_and_inclusion_paths_are_those_of_pymerkle(theirs, size):
    root = theirs.get_root(size)
    assert root_hash(LEAVES[:size]) == root
    for index in range(size):
        proof = inclusion_proof(LEAVES[:size], index)
        assert theirs.prove_inclusion(index + 1, size).path[1:] == proof
        assert includes(LEAVES[index], index, size, proof, root)


@pytest.mark.parametrize("size", SIZES)
def test_consistency_proofs_hold_between_roots_of_pymerkle(theirs, size):
    for old in range(1, size + 1):
        proof = consistency_proof(LEAVES[:size], old)
        assert is_consistent(old, theirs.get_root(old), size, theirs.get_root(size), proof)


def test_a_proof_of_inclusion_holds_for_one_leaf_place_size_and_path_only():
    size, root = 13, root_hash(LEAVES[:13])
    for index in range(size):
        proof = inclusion_proof(LEAVES[:size], index)
        assert not any(includes(LEAVES[other], index, size, proof, root) for other in range(size) if other != index)
        assert not any(includes(LEAVES[index], other, size, proof, root) for other in range(-1, 20) if other != index)
        assert not includes(LEAVES[index], index, size, proof[:-1], root)
        assert not includes(LEAVES[index], index, size, [*proof, proof[0]], root)
        assert not includes(LEAVES[index], index, size, [bytes(32), *proof[1:]], root)


def test_a_proof_of_consistency_holds_for_one_pair_of_trees_only():
    forked = [*LEAVES[:4], leaf_hash(b"another"), *LEAVES[5:13]]
    for old in range(1, 13):
        proof = consistency_proof(LEAVES[:13], old)
        roots = root_hash(LEAVES[:old]), root_hash(LEAVES[:13])
        assert is_consistent(old, roots[0], 13, roots[1], proof)
        assert not is_consistent(old, roots[0], 13, root_hash(forked), proof) or forked == LEAVES[:13]
        assert not is_consistent(old, bytes(32), 13, roots[1], proof)
        assert not is_consistent(old, roots[0], 13, roots[1], [*proof, bytes(32)])
        assert not is_consistent(old, roots[0], 13, roots[1], proof[:-1])
        assert not is_consistent(0, roots[0], 13, roots[1], proof)
    assert not is_consistent(14, root_hash(LEAVES[:14]), 13, root_hash(LEAVES[:13]), [])


def test_a_leaf_never_passes_for_a_node():
    inner = LEAVES[0] + LEAVES[1]
    assert leaf_hash(inner) != root_hash(LEAVES[:2])

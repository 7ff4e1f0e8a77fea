"""The ledger under crashes and under people who drop, move, cut, fork or restore it."""

from __future__ import annotations

import itertools
import json
import shutil
from dataclasses import replace

import pytest
from receipt_sample import RUN_ID, Sample, facts, intent

from reports.receipts import ledger as ledger_module
from reports.receipts.bundle import check_bundle, check_since, read_bundle
from reports.receipts.canonical import dumps
from reports.receipts.errors import ReceiptError, ReceiptMissing
from reports.receipts.ledger import Ledger, read_checkpoint


@pytest.fixture
def site(tmp_path):
    made = Sample.at(tmp_path / "site")
    for number in range(5):
        made.receipt(number)
    return made


def entry_files(site):
    return sorted((site.ledger.path / "entries").iterdir())


def test_a_whole_ledger_verifies_and_finds_its_requests(site):
    signer = site.keys.signer()
    site.ledger.append(site.signed(intent(signer)), signer)
    assert site.ledger.verify(site.keys.keys()) == []
    found = site.ledger.find("request-0000", RUN_ID)
    assert {name: position.index for name, position in found.items()} == {"receipt": 0, "intent": 5}
    assert site.ledger.find("request-0000", "f" * 16) == {}


@pytest.mark.parametrize("make", [False, True])
def test_a_ledger_that_is_not_there_is_named(tmp_path, make):
    if make:
        (tmp_path / "ledger").mkdir()
    assert "has no checkpoint" in Ledger(tmp_path / "ledger").verify({})[0]


def test_swapped_entries_are_noticed(site):
    first, second = entry_files(site)[1:3]
    content = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(content)
    assert "dropped, moved or replaced" in site.ledger.verify(site.keys.keys())[0]


def test_a_dropped_entry_is_named(site):
    entry_files(site)[2].unlink()
    assert "entry 0002 is missing" in site.ledger.verify(site.keys.keys())[0]


def test_closing_the_gap_of_a_dropped_entry_is_noticed(site):
    files = entry_files(site)
    for former, later in itertools.pairwise(files[1:]):
        former.write_bytes(later.read_bytes())
    files[-1].unlink()
    assert site.ledger.verify(site.keys.keys()) != []


def test_an_entry_edited_and_signed_by_another_key_is_named(site, tmp_path):
    other = Sample.at(tmp_path / "other")
    entry_files(site)[3].write_bytes(other.signed(facts(other.keys.signer())))
    assert "entry 0003" in site.ledger.verify(site.keys.keys())[0]


def test_a_file_too_many_is_noticed(site):
    (site.ledger.path / "entries" / "0005.json").write_bytes(entry_files(site)[0].read_bytes())
    assert "checkpoint does not cover" in site.ledger.verify(site.keys.keys())[0]


def truncated(site, size):
    """The operator cuts the ledger and signs a checkpoint of what is left."""
    kept = [file.read_bytes() for file in entry_files(site)[:size]]
    origin = site.ledger.checkpoint().origin
    shutil.rmtree(site.ledger.path)
    made = Ledger(site.ledger.path)
    original = ledger_module.secrets.token_bytes
    ledger_module.secrets.token_bytes = lambda count: bytes.fromhex(origin) if count == 16 else original(count)
    try:
        for entry in kept:
            made.append(entry, site.keys.signer())
    finally:
        ledger_module.secrets.token_bytes = original
    return made


def test_a_cut_ledger_that_the_operator_signed_again_is_noticed_by_a_kept_checkpoint(site):
    kept = site.ledger.checkpoint()
    cut = truncated(site, 3)
    assert cut.verify(site.keys.keys()) == []
    assert "was cut or restored" in cut.verify(site.keys.keys(), kept)[0]


def test_a_fork_that_the_operator_signed_is_noticed_by_a_kept_checkpoint_and_by_a_receipt(site):
    kept = site.ledger.checkpoint()
    receipt = read_bundle(site.receipt(5))
    forked = truncated(site, 3)
    for number in (7, 8, 9, 10):
        site.receipt(number)
    assert forked.verify(site.keys.keys()) == []
    assert "forked or rewritten" in forked.verify(site.keys.keys(), kept)[0]
    assert "forked or rewritten" in check_bundle(receipt, site.keys.keys(), forked)[0]


def test_an_append_to_a_ledger_that_was_tampered_with_is_refused_and_changes_nothing(site):
    entry_files(site)[1].write_bytes(entry_files(site)[0].read_bytes())
    before = {file: file.read_bytes() for file in site.ledger.path.rglob("*") if file.is_file()}
    with pytest.raises(ReceiptError, match="dropped, moved or replaced"):
        site.receipt(9)
    assert {file: file.read_bytes() for file in site.ledger.path.rglob("*") if file.is_file()} == before


def test_a_grown_ledger_is_consistent_with_every_former_checkpoint(tmp_path):
    site = Sample.at(tmp_path)
    lines = [site.receipt(number) and site.ledger.checkpoint().line for number in range(9)]
    for line in lines:
        assert site.ledger.verify(site.keys.keys(), read_checkpoint(line)) == []


def test_a_checkpoint_of_another_ledger_is_noticed(site, tmp_path):
    other = Sample(site.keys, Ledger(tmp_path / "other"))
    other.receipt()
    assert "another ledger" in site.ledger.verify(site.keys.keys(), other.ledger.checkpoint())[0]


def test_a_receipt_of_another_site_is_not_in_this_ledger(site, tmp_path):
    other = Sample(site.keys, Ledger(tmp_path / "other"))
    receipt = read_bundle(other.receipt())
    assert check_bundle(receipt, site.keys.keys()) == []
    assert check_bundle(receipt, site.keys.keys(), site.ledger) != []


def test_a_receipt_alone_cannot_decide_what_happened_since_another_size(site):
    old = site.ledger.checkpoint()
    receipt = read_bundle(site.receipt(9))
    with pytest.raises(ReceiptMissing):
        check_since(receipt, old, site.keys.keys())
    assert check_since(receipt, site.ledger.checkpoint(), site.keys.keys()) == []
    later = read_bundle(site.receipt(10))
    with pytest.raises(ReceiptMissing):
        check_since(receipt, later.checkpoint, site.keys.keys())


def test_a_kept_checkpoint_with_another_root_contradicts_a_receipt_of_the_same_size(site):
    receipt = read_bundle(site.receipt(5))
    truncated(site, 5)
    site.receipt(6)
    assert "forked or rewritten" in check_since(receipt, site.ledger.checkpoint(), site.keys.keys())[0]


@pytest.mark.parametrize("cut", ["nothing", "entry beside", "entry", "checkpoint beside"])
def test_an_append_cut_short_anywhere_is_taken_up_without_loss_or_repeat(site, monkeypatch, cut):
    entry = site.signed(replace(facts(site.keys.signer()), outcome="not held"))
    before = site.ledger.entries()
    real = ledger_module.write_whole
    calls = []

    def dying(path, content, mode, *, replace):
        calls.append(path.name)
        dead = {"nothing": 1, "entry beside": 1, "entry": 2, "checkpoint beside": 2}[cut]
        if len(calls) == dead:
            if cut.endswith("beside"):
                path.with_name(f".{path.name}.0badcafe.new").write_bytes(content[: len(content) // 2])
            raise KeyboardInterrupt
        real(path, content, mode, replace=replace)

    monkeypatch.setattr(ledger_module, "write_whole", dying)
    with pytest.raises(KeyboardInterrupt):
        site.ledger.append(entry, site.keys.signer())
    monkeypatch.setattr(ledger_module, "write_whole", real)
    assert Ledger(site.ledger.path).entries() == before
    assert site.ledger.append(entry, site.keys.signer()).index == 5
    assert site.ledger.entries() == [*before, entry]
    assert site.ledger.verify(site.keys.keys()) == []


def test_a_second_writer_is_refused_rather_than_overwritten(site, monkeypatch):
    torn = site.ledger.path / "entries" / "0005.json"
    monkeypatch.setattr(Ledger, "recover", lambda self: torn.write_bytes(b"the other writer's"))
    with pytest.raises(ReceiptError):
        site.receipt(9)
    assert torn.read_bytes() == b"the other writer's"
    assert site.ledger.size == 5


def test_a_bundle_moved_to_another_place_in_the_tree_is_rejected(site):
    document = json.loads(site.receipt(9))
    for index in (-1, 0, 4, 6, True, "5", 2**70):
        with pytest.raises(ReceiptError):
            read_bundle(dumps({**document, "index": index}))

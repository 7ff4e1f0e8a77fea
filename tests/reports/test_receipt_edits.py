"""Every edit of one character, of a receipt and of every file of the ledger, is noticed."""

from __future__ import annotations

import base64
import json
import time
from dataclasses import replace
from pathlib import Path

import pytest
from receipt_sample import Sample, facts

from reports.receipts.bundle import check_bundle, read_bundle
from reports.receipts.canonical import dumps, from_base64, loads
from reports.receipts.envelope import sign_envelope
from reports.receipts.errors import ReceiptError
from reports.receipts.ledger import read_checkpoint
from reports.receipts.statement import build_statement, read_statement


@pytest.fixture
def site(tmp_path: Path) -> Sample:
    return Sample.at(tmp_path)


def edits(content: bytes):
    """Each byte changed to its neighbour, in its case bit and to a space; each removed, doubled, and a space put in."""
    for at, byte in enumerate(content):
        for other in {byte ^ 1, byte ^ 0x20, 0x20} - {byte}:
            yield content[:at] + bytes([other]) + content[at + 1 :]
        yield content[:at] + content[at + 1 :]
        yield content[: at + 1] + content[at:]
        yield content[:at] + b" " + content[at:]
    yield content + b"\n"


def rejected(content: bytes, keys) -> bool:
    try:
        return bool(check_bundle(read_bundle(content), keys))
    except ReceiptError:
        return True


def test_every_edit_of_one_character_of_a_receipt_is_rejected(site):
    for number in range(3):
        content = site.receipt(number)
    keys = site.keys.keys()
    assert not rejected(content, keys)
    changed = [edit for edit in edits(content) if edit != content]
    assert len(changed) > 10_000
    assert [edit for edit in changed if not rejected(edit, keys)] == []


def test_every_edit_of_one_character_of_a_ledger_is_rejected(site):
    for number in range(2):
        site.receipt(number)
    keys, ledger = site.keys.keys(), site.ledger
    assert ledger.verify(keys) == []
    files = sorted(file for file in ledger.path.rglob("*") if file.is_file())
    assert len(files) == 3
    for file in files:
        content = file.read_bytes()
        step = 1 if file.name == "checkpoint" else 3
        for at in range(0, len(content), step):
            file.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
            assert ledger.verify(keys) != [], (file.name, at)
        for edit in (content[:-1], content + b" ", b"", content[:-1] + b"\n\n"):
            file.write_bytes(edit)
            assert ledger.verify(keys) != [], file.name
        file.write_bytes(content)
    assert ledger.verify(keys) == []


def test_every_edit_of_a_kept_checkpoint_is_rejected(site):
    site.receipt()
    line = site.ledger.checkpoint().line
    keys = site.keys.keys()
    for edit in edits(line.encode()):
        if edit == line.encode():
            continue
        try:
            assert site.ledger.verify(keys, read_checkpoint(edit.decode("latin-1"))) != []
        except ReceiptError:
            continue


@pytest.mark.parametrize(
    "text",
    ['{"a":1,"a":1}', '{"a":1.0}', '{"a":1e3}', '{"a": 1}', '{"b":1,"a":1}', '{"a":NaN}', '{"a":"\\u0061"}', '{"a":01}',
     '{"a":-0}', "[" * 100_000, '{"a":9007199254740993}', ""],
)  # fmt: skip
def test_json_of_any_but_the_canonical_form_is_refused(text):
    with pytest.raises(ReceiptError):
        loads(text.encode(), "file")


@pytest.mark.parametrize("content", [b"\xff", "{}".encode("utf-16"), b"\xef\xbb\xbf{}"])
def test_text_of_another_encoding_is_refused(content):
    with pytest.raises(ReceiptError):
        loads(content, "file")


@pytest.mark.parametrize("text", ["QQ", "QR==", "QQ==\n", "QQ=", "Q Q=", "QQ-_", 5])
def test_base64_of_any_but_the_canonical_form_is_refused(text):
    with pytest.raises(ReceiptError):
        from_base64(text, "field")


def test_a_field_too_many_is_refused_although_it_is_signed(site):
    signer = site.keys.signer()
    document = json.loads(build_statement(facts(signer)))
    document["predicate"]["rows"] = 47
    with pytest.raises(ReceiptError):
        read_statement(dumps(document), "statement")
    entry = sign_envelope(dumps(document), [signer])
    site.ledger.append(entry, signer)
    assert site.ledger.verify(site.keys.keys()) != []


def test_bytes_are_verified_as_received_so_an_equal_document_in_another_form_is_refused(site):
    signer = site.keys.signer()
    loose = json.dumps(json.loads(build_statement(facts(signer)))).encode()
    site.ledger.append(sign_envelope(loose, [signer]), signer)
    assert "not in canonical form" in site.ledger.verify(site.keys.keys())[0]


def test_a_signature_left_out_or_in_another_role_is_noticed(tmp_path):
    site = Sample.at(tmp_path, ("operator", "steward"))
    content = site.receipt(0, "operator", "steward")
    keys = site.keys.keys()
    assert not rejected(content, keys)
    document = json.loads(content)
    removed = document["envelope"]["signatures"].pop()["keyid"]
    assert rejected(dumps(document), keys)
    document["keys"].pop(removed, None)
    assert rejected(dumps(document), keys)
    swapped = {key_id: replace(key, role="operator") for key_id, key in keys.items()}
    assert rejected(content, swapped)


def test_a_receipt_carries_the_payload_that_the_signature_covers(site):
    document = json.loads(site.receipt())
    payload = base64.b64decode(document["envelope"]["payload"])
    assert read_statement(payload, "statement").request.request_id == "request-0000"


def test_one_receipt_is_verified_within_ten_milliseconds_of_processor_time(site):
    for number in range(20):
        content = site.receipt(number)
    keys = site.keys.keys()
    spent = []
    for _ in range(20):
        began = time.process_time()
        assert check_bundle(read_bundle(content), keys) == []
        spent.append(time.process_time() - began)
    assert min(spent) < 0.010

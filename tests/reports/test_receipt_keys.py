"""Keys: for their owner alone, with an end of validity, and never trusted because a file carries them."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from receipt_sample import Sample

from reports.receipts.bundle import check_bundle, read_bundle
from reports.receipts.errors import ReceiptError, ReceiptMissing
from reports.receipts.keys import KeyDirectory, fingerprint, read_public_keys


@pytest.fixture
def keys(tmp_path):
    made = KeyDirectory(tmp_path / "keys")
    made.new()
    return made


def private_file(keys):
    return keys.path / f"{keys.signer().key_id}.pem"


def test_private_keys_are_for_their_owner_alone_whatever_the_umask(tmp_path):
    before = os.umask(0)
    try:
        keys = KeyDirectory(tmp_path / "keys")
        keys.new()
    finally:
        os.umask(before)
    assert private_file(keys).stat().st_mode & 0o777 == 0o600
    assert keys.path.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o666])
def test_a_private_key_that_others_can_read_is_refused(keys, mode):
    private_file(keys).chmod(mode)
    with pytest.raises(ReceiptError, match="can be read by others"):
        keys.signer()


def test_a_private_key_of_another_user_is_refused(keys, monkeypatch):
    file = private_file(keys)
    monkeypatch.setattr(os, "geteuid", lambda: file.stat().st_uid + 1)
    with pytest.raises(ReceiptError, match="another user"):
        keys.signer()


def other_algorithm():
    return ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


@pytest.mark.parametrize("content", [b"", b"no key", other_algorithm()])
def test_a_private_key_of_another_form_is_refused_and_stays(keys, content):
    file = private_file(keys)
    file.write_bytes(content)
    with pytest.raises(ReceiptError, match=r"PEM|its name"):
        keys.signer()
    assert file.read_bytes() == content


def test_a_private_key_that_is_not_the_one_of_its_name_is_refused(keys, tmp_path):
    other = KeyDirectory(tmp_path / "other")
    other.new()
    private_file(keys).write_bytes(private_file(other).read_bytes())
    with pytest.raises(ReceiptError, match="its name"):
        keys.signer()


def test_a_missing_key_names_the_command_that_makes_one(tmp_path):
    with pytest.raises(ReceiptMissing, match="icu-memory keys new"):
        KeyDirectory(tmp_path / "keys").signer()
    with pytest.raises(ReceiptMissing, match="--role steward"):
        KeyDirectory(tmp_path / "keys").signer("steward")


def test_a_second_first_key_is_refused(keys):
    with pytest.raises(ReceiptError, match="keys rotate"):
        keys.new()


def test_rotation_keeps_the_old_public_key_with_its_end_and_drops_the_old_private_one(keys):
    old = keys.signer().key_id
    new = keys.rotate()
    assert keys.keys()[old].valid_until is not None
    assert keys.keys()[new].valid_until is None
    assert keys.signer().key_id == new
    assert not (keys.path / f"{old}.pem").exists()


def test_receipts_of_a_rotated_key_stay_valid_and_later_ones_by_it_are_not(tmp_path):
    site = Sample.at(tmp_path)
    bundle = read_bundle(site.receipt())
    old = site.keys.signer().key_id
    site.keys.rotate()
    known = site.keys.keys()
    assert check_bundle(bundle, known) == []
    ended = {**known, old: replace(known[old], valid_until="2020-01-01T00:00:00Z")}
    assert "not valid" in check_bundle(bundle, ended)[0]
    not_yet = {**known, old: replace(known[old], valid_from="2999-01-01T00:00:00Z")}
    assert "not valid" in check_bundle(bundle, not_yet)[0]


def test_a_key_that_travels_in_the_receipt_is_not_trusted(tmp_path):
    site, other = Sample.at(tmp_path / "a"), Sample.at(tmp_path / "b")
    bundle = read_bundle(other.receipt())
    assert "not the one that was given or pinned" in check_bundle(bundle, site.keys.keys())[0]


def test_a_public_key_file_is_pem_or_the_directory_of_the_site(keys):
    public = (keys.path / "operator.pub.pem").read_bytes()
    (alone,) = read_public_keys(public, "file").values()
    (known,) = read_public_keys((keys.path / "directory.json").read_bytes(), "file").values()
    assert (alone.key_id, alone.public) == (known.key_id, known.public)
    assert (alone.role, known.role) == (None, "operator")
    with pytest.raises(ReceiptError, match="private key"):
        read_public_keys(private_file(keys).read_bytes(), "file")
    for content in (
        b"",
        b"{}",
        public.replace(b"MCow", b"MCox"),
        b"-----BEGIN PUBLIC KEY-----\n-----END PUBLIC KEY-----",
    ):
        with pytest.raises(ReceiptError):
            read_public_keys(content, "file")


def test_a_key_under_another_id_is_refused(keys):
    content = (keys.path / "directory.json").read_bytes()
    key_id = keys.signer().key_id.encode()
    with pytest.raises(ReceiptError, match="its id"):
        read_public_keys(content.replace(key_id, b"0" * 64), "file")


def test_the_text_of_a_signer_and_of_errors_holds_no_private_key(keys):
    secret = private_file(keys).read_bytes().split(b"\n")[1].decode()
    assert secret not in repr(keys.signer())
    assert fingerprint(keys.signer().key_id).replace(" ", "") == f"SHA256{keys.signer().key_id}"

"""Ed25519 keys of a site: private ones for their owner alone, a directory of public ones with roles and validity."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from reports.receipts.canonical import dumps, from_base64, from_hex, loads, to_base64, with_fields
from reports.receipts.errors import ReceiptError, ReceiptMissing
from reports.receipts.files import PRIVATE, PUBLIC, sweep, write_whole
from reports.receipts.moment import checked_moment, moment

Role = Literal["operator", "steward"]
ROLES: tuple[Role, ...] = get_args(Role)
OTHERS = 0o077
KEY_ID_BYTES = 32

_DIRECTORY = "directory.json"
_PEM = re.compile(rb"-----BEGIN PUBLIC KEY-----\r?\n.*?-----END PUBLIC KEY-----\r?\n?", re.DOTALL)


@dataclass(frozen=True)
class PublicKey:
    """A public key by its id, the SHA-256 (hex) of its SubjectPublicKeyInfo; raw, 32 bytes, as base64.

    Role and validity are None where the key came alone, without the directory that knows them.  Times are moments;
    both ends of the validity belong to it, and an open end is None.
    """

    key_id: str
    public: str
    role: Role | None = None
    valid_from: str | None = None
    valid_until: str | None = None

    def verifies(self, signature: bytes, message: bytes) -> bool:
        """Whether this key made an Ed25519 signature (RFC 8032) of a message."""
        try:
            _loaded_public(self.public).verify(signature, message)
        except (InvalidSignature, ValueError):
            return False
        return True

    def covers(self, at: str) -> bool:
        """Whether a moment lies within the key's validity, as far as that is known."""
        return (self.valid_from or at) <= at <= (self.valid_until or at)

    def pem(self) -> bytes:
        """The key as PEM, to hand to whoever verifies."""
        return _loaded_public(self.public).public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )


@dataclass(frozen=True)
class Signer:
    """A private key that is in use, with its public half; prints as its id only."""

    key: PublicKey
    _private: Ed25519PrivateKey

    @property
    def key_id(self) -> str:
        """Id of the key."""
        return self.key.key_id

    @property
    def role(self) -> Role:
        """The role in which the key signs."""
        return self.key.role or "operator"

    def sign(self, message: bytes) -> bytes:
        """Ed25519 signature (RFC 8032), 64 bytes."""
        return self._private.sign(message)

    def __repr__(self) -> str:
        return f"Signer({self.role}, {self.key_id[:16]})"


class KeyDirectory:
    """The keys of one site in a directory of their own, made where absent when the first key is.

    Raises ReceiptMissing where a key is needed that is not there, ReceiptError for one that others can read, that
    belongs to another user, is damaged or is not the one its name says.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def new(self, role: Role = "operator") -> str:
        """Make the first key of a role; returns its fingerprint.  Raises ReceiptError where there is one already."""
        known = self.keys()
        if any(key.role == role and key.valid_until is None for key in known.values()):
            raise ReceiptError(
                f"keys {self.path}: there is a key of the {role}; replace it with `icu-memory keys rotate`"
            )
        return self._add(role, known)

    def rotate(self, role: Role = "operator") -> str:
        """Replace the key of a role; the old public key stays with its end of validity, the old private key goes.

        Returns the new fingerprint.  What the old key has signed stays verifiable.
        """
        old = self._current(role)
        known = {**self.keys(), old.key_id: replace(old, valid_until=moment())}
        made = self._add(role, known)
        self._private_file(old.key_id).unlink(missing_ok=True)
        return made

    def signer(self, role: Role = "operator") -> Signer:
        """The private key that a role signs with now."""
        key = self._current(role)
        return Signer(key, self._private(key))

    def keys(self) -> dict[str, PublicKey]:
        """All public keys, former ones too, by id; empty where none was made."""
        file = self.path / _DIRECTORY
        if not file.exists():
            return {}
        return read_directory(_read(file, f"keys {file}"), f"keys {file}")

    def has(self, role: Role) -> bool:
        """Whether a role has a key in use."""
        return any(key.role == role and key.valid_until is None for key in self.keys().values())

    def _current(self, role: Role) -> PublicKey:
        for key in self.keys().values():
            if key.role == role and key.valid_until is None:
                return key
        option = "" if role == "operator" else f" --role {role}"
        raise ReceiptMissing(f"keys {self.path}: no key of the {role}; make one with `icu-memory keys new{option}`")

    def _add(self, role: Role, known: Mapping[str, PublicKey]) -> str:
        private = Ed25519PrivateKey.generate()
        key = replace(_named(private.public_key()), role=role, valid_from=moment())
        pem = private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            sweep(self.path)
            write_whole(self._private_file(key.key_id), pem, PRIVATE, replace=False)
            # From here on the key is in use: before, a private key that no directory names is dead.
            write_whole(self.path / _DIRECTORY, directory_document([*known.values(), key]), PUBLIC, replace=True)
            write_whole(self.path / f"{role}.pub.pem", key.pem(), PUBLIC, replace=True)
        except OSError as failure:
            raise ReceiptError(
                f"keys {self.path}: cannot be written ({_reason(failure)}); see to it and repeat"
            ) from None
        return key.key_id

    def _private_file(self, key_id: str) -> Path:
        return self.path / f"{key_id}.pem"

    def _private(self, key: PublicKey) -> Ed25519PrivateKey:
        file = self._private_file(key.key_id)
        what = f"private key {file}"
        if not file.exists():
            raise ReceiptMissing(f"{what}: is not there; restore it, or begin a new one with `icu-memory keys rotate`")
        facts = file.stat()
        if facts.st_uid != os.geteuid():
            raise ReceiptError(f"{what}: belongs to another user; run as its owner")
        if facts.st_mode & OTHERS:
            raise ReceiptError(
                f"{what}: can be read by others; chmod 600 it, and rotate it if anybody may have read it"
            )
        try:
            private = serialization.load_pem_private_key(_read(file, what), password=None)
        except (ValueError, TypeError):
            raise ReceiptError(f"{what}: is not an Ed25519 private key in PEM; restore it from its backup") from None
        if not isinstance(private, Ed25519PrivateKey) or _named(private.public_key()).key_id != key.key_id:
            raise ReceiptError(f"{what}: is not the key that its name says; restore it from its backup")
        return private


def fingerprint(key_id: str) -> str:
    """A key id as people compare it: SHA-256 in groups of eight digits."""
    return "SHA256 " + " ".join(key_id[at : at + 8] for at in range(0, len(key_id), 8))


def read_public_keys(content: bytes, what: str) -> dict[str, PublicKey]:
    """Public keys by id from PEM blocks, or from the key directory of a site, which knows roles and validity too.

    Raises ReceiptError for a private key, another kind of key or another file.
    """
    if b"PRIVATE KEY" in content:
        raise ReceiptError(f"{what}: is a private key; give the public one, and rotate this one if it has travelled")
    blocks = _PEM.findall(content)
    if not blocks:
        return read_directory(content, what)
    keys = [_from_pem(block, what) for block in blocks]
    return {key.key_id: key for key in keys}


def directory_document(keys: Iterable[PublicKey]) -> bytes:
    """The public keys of a site as canonical JSON, in order of validity."""
    rows = sorted((asdict(key) for key in keys), key=lambda row: (row["valid_from"], row["key_id"]))
    return dumps({"keys": rows})


def read_directory(content: bytes, what: str) -> dict[str, PublicKey]:
    """The keys of a directory document by id; ReceiptError for anything else."""
    rows = with_fields(loads(content, what), ("keys",), what)["keys"]
    if not isinstance(rows, list):
        raise ReceiptError(f"{what}: keys are not a list; restore it from its backup")
    keys = [_from_row(row, what) for row in rows]
    return {key.key_id: key for key in keys}


def embedded(keys: Iterable[PublicKey]) -> dict[str, str]:
    """Raw public keys by id, as a receipt carries them."""
    return {key.key_id: key.public for key in keys}


def read_embedded(document: Any, what: str) -> dict[str, PublicKey]:
    """Public keys that a receipt carries, each checked against its id; they say who signed, not whom to trust."""
    if not isinstance(document, dict):
        raise ReceiptError(f"{what}: is not a mapping of keys; it was changed")
    return {key_id: _checked(key_id, public, what) for key_id, public in document.items()}


def used_keys(key_ids: Sequence[str], keys: Mapping[str, PublicKey]) -> list[PublicKey]:
    """The keys of these ids, each once, by id."""
    return [keys[key_id] for key_id in sorted(set(key_ids))]


def _from_row(row: Any, what: str) -> PublicKey:
    fields = with_fields(row, PublicKey.__dataclass_fields__, what)
    key = _checked(fields["key_id"], fields["public"], what)
    if fields["role"] not in ROLES:
        raise ReceiptError(f"{what}: role is none of {', '.join(ROLES)}; restore it from its backup")
    checked_moment(fields["valid_from"], what)
    if fields["valid_until"] is not None:
        checked_moment(fields["valid_until"], what)
    return replace(key, role=fields["role"], valid_from=fields["valid_from"], valid_until=fields["valid_until"])


def _checked(key_id: Any, public: Any, what: str) -> PublicKey:
    from_hex(key_id, KEY_ID_BYTES, f"{what}: key id")
    from_base64(public, f"{what}: key")
    try:
        key = _named(_loaded_public(public))
    except ValueError:
        raise ReceiptError(f"{what}: a key is not Ed25519; it was changed") from None
    if key.key_id != key_id:
        raise ReceiptError(f"{what}: a key is not the one that its id says; it was changed")
    return key


def _from_pem(block: bytes, what: str) -> PublicKey:
    try:
        key = serialization.load_pem_public_key(block)
    except (ValueError, TypeError):
        raise ReceiptError(f"{what}: is not a public key in PEM; ask the operator for it again") from None
    if not isinstance(key, Ed25519PublicKey):
        raise ReceiptError(f"{what}: is not an Ed25519 key; ask the operator for the right one")
    return _named(key)


def _named(key: Ed25519PublicKey) -> PublicKey:
    info = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return PublicKey(hashlib.sha256(info).hexdigest(), to_base64(key.public_bytes_raw()))


def _loaded_public(public: str) -> Ed25519PublicKey:
    return Ed25519PublicKey.from_public_bytes(from_base64(public, "public key"))


def _read(file: Path, what: str) -> bytes:
    try:
        return file.read_bytes()
    except OSError as failure:
        raise ReceiptError(f"{what}: cannot be read ({_reason(failure)}); check the path") from None


def _reason(failure: OSError) -> str:
    return os.strerror(failure.errno) if failure.errno else "input or output failed"

"""DSSE envelopes: what is signed are the received bytes, and only then are they read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from securesystemslib.dsse import Envelope

from reports.receipts.canonical import dumps, from_base64, from_hex, loads, to_base64, with_fields
from reports.receipts.errors import ReceiptError
from reports.receipts.keys import KEY_ID_BYTES, PublicKey, Signer

PAYLOAD_TYPE = "application/vnd.in-toto+json"
MOST_SIGNATURES = 2

_SIGNATURE_BYTES = 64


@dataclass(frozen=True)
class Signed:
    """A payload of an envelope, with the signatures it came with by key id, in order."""

    payload: bytes
    signatures: Mapping[str, bytes]

    def refuse_unsigned(self, keys: Mapping[str, PublicKey], what: str) -> None:
        """Raise ReceiptError unless every signature is one of the payload by the key of its id."""
        message = pre_authentication(self.payload)
        for key_id, signature in self.signatures.items():
            if key_id not in keys:
                raise ReceiptError(f"{what}: is signed by the key {key_id[:16]}..., which is not among the keys")
            if not keys[key_id].verifies(signature, message):
                raise ReceiptError(f"{what}: the signature of the key {key_id[:16]}... does not fit; it was changed")


def sign_envelope(payload: bytes, signers: Sequence[Signer]) -> bytes:
    """Canonical bytes of an envelope (DSSE 1.0) with one or two signatures, in order of key id."""
    message = pre_authentication(payload)
    rows = [
        {"keyid": signer.key_id, "sig": to_base64(signer.sign(message))}
        for signer in sorted(signers, key=lambda signer: signer.key_id)
    ]
    return dumps({"payload": to_base64(payload), "payloadType": PAYLOAD_TYPE, "signatures": rows})


def read_envelope(content: bytes, what: str) -> Signed:
    """The payload and the signatures of an envelope, its form checked to the byte; no signature is judged yet.

    Raises ReceiptError for other fields, another type, no or too many signatures, or two by one key.
    """
    document = with_fields(loads(content, what), ("payload", "payloadType", "signatures"), what)
    if document["payloadType"] != PAYLOAD_TYPE:
        raise ReceiptError(f"{what}: payloadType is not {PAYLOAD_TYPE}; it was changed")
    rows = document["signatures"]
    if not isinstance(rows, list) or not 1 <= len(rows) <= MOST_SIGNATURES:
        raise ReceiptError(f"{what}: has not one or two signatures; it was changed")
    signatures: dict[str, bytes] = {}
    for row in rows:
        fields = with_fields(row, ("keyid", "sig"), f"{what}: signature")
        from_hex(fields["keyid"], KEY_ID_BYTES, f"{what}: keyid")
        signatures[fields["keyid"]] = signature_bytes(fields["sig"], what)
    if list(signatures) != sorted(signatures) or len(signatures) < len(rows):
        raise ReceiptError(f"{what}: signatures are not one a key in order of key id; it was changed")
    return Signed(from_base64(document["payload"], f"{what}: payload"), signatures)


def signature_bytes(text: object, what: str) -> bytes:
    """An Ed25519 signature from base64; ReceiptError for another length."""
    signature = from_base64(text, f"{what}: signature")
    if len(signature) != _SIGNATURE_BYTES:
        raise ReceiptError(f"{what}: a signature has not {_SIGNATURE_BYTES} bytes; it was changed")
    return signature


def pre_authentication(payload: bytes) -> bytes:
    """What is signed: type and payload with their lengths (DSSE 1.0, PAE)."""
    encoded: bytes = Envelope(payload, PAYLOAD_TYPE, {}).pae()
    return encoded

"""What one batch of banks stores, and the thin-QR form of its protected part [NC01 B2].

With K the active addresses and U their pins, the protected part K H^-1 U (H = K'K) is Q Y with Q an orthonormal basis
of the span of K and Y = (Q'K)^-T U. Columns of Q and rows of Y lie in the same slots as the addresses; any orthonormal
basis serves, so a slot can be filled without moving the others.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor

EXACT = torch.float64


@dataclass
class State:
    """The arrays of a batch of banks; inactive slots are zeros.

    Attributes:
        complement: X (B, d_k, d_v), the part of the matrix that no protected read sees, in the storage dtype.
        basis: Q (B, d_k, m) and `pinned`: Y (B, m, d_v), the protected part, in the storage dtype.
        addresses: K (B, d_k, m), `targets`: V (B, m, d_v) and `pins`: U (B, m, d_v), float64.
        expires: (B, m) int64, the clock at which a protection ends. `active`: (B, m) bool.
    """

    complement: Tensor
    basis: Tensor
    pinned: Tensor
    addresses: Tensor
    targets: Tensor
    pins: Tensor
    expires: Tensor
    active: Tensor

    @classmethod
    def zeros(cls, banks: int, d_k: int, d_v: int, slots: int, dtype: torch.dtype, device: torch.device) -> State:
        """Banks that hold nothing."""

        def blank(*shape: int, kind: torch.dtype = dtype) -> Tensor:
            return torch.zeros((banks, *shape), dtype=kind, device=device)

        return cls(
            blank(d_k, d_v),
            blank(d_k, slots),
            blank(slots, d_v),
            blank(d_k, slots, kind=EXACT),
            blank(slots, d_v, kind=EXACT),
            blank(slots, d_v, kind=EXACT),
            blank(slots, kind=torch.int64),
            blank(slots, kind=torch.bool),
        )

    def protected(self) -> tuple[Tensor, Tensor]:
        """Q and Y with inactive slots selected away: a number planted there reaches no product."""
        return columns(self.basis, self.active), rows(self.pinned, self.active)

    def canonical(self) -> dict[str, Tensor]:
        """Every array by name, inactive slots as the zeros that they stand for."""
        held = {field.name: getattr(self, field.name) for field in fields(self)}
        for name in ("basis", "addresses"):
            held[name] = columns(held[name], self.active)
        for name in ("pinned", "targets", "pins"):
            held[name] = rows(held[name], self.active)
        return held | {"expires": torch.where(self.active, self.expires, 0)}

    def to(self, device: torch.device) -> State:
        """The same arrays on another device."""
        return State(**{field.name: getattr(self, field.name).to(device) for field in fields(self)})

    def bytes_per_bank(self) -> int:
        """Stored bytes of one bank."""
        tensors: list[Tensor] = [getattr(self, field.name) for field in fields(self)]
        return sum(part.element_size() * part[0].numel() for part in tensors)


def columns(array: Tensor, active: Tensor) -> Tensor:
    """(B, n, m) with the columns of inactive slots zero."""
    return torch.where(active[:, None, :], array, torch.zeros((), dtype=array.dtype, device=array.device))


def rows(array: Tensor, active: Tensor) -> Tensor:
    """(B, m, n) with the rows of inactive slots zero."""
    return torch.where(active[:, :, None], array, torch.zeros((), dtype=array.dtype, device=array.device))


def padded(square: Tensor, active: Tensor) -> Tensor:
    """(B, m, m) with the identity in place of inactive rows and columns, so that a solve leaves them alone."""
    both = active[:, :, None] & active[:, None, :]
    return torch.where(both, square, torch.eye(square.shape[-1], dtype=square.dtype, device=square.device))


def factor(addresses: Tensor, pins: Tensor, active: Tensor) -> tuple[Tensor, Tensor]:
    """Q (B, d_k, m) and Y (B, m, d_v) from addresses and pins, inactive slots zero: Cholesky QR in two passes."""
    basis, pinned = addresses.mT, pins
    for _ in range(2):
        lower = torch.linalg.cholesky(padded(basis @ basis.mT, active))
        basis = torch.linalg.solve_triangular(lower, basis, upper=False)
        pinned = torch.linalg.solve_triangular(lower, pinned, upper=False)
    return basis.mT.contiguous(), pinned


def smallest_eigenvalue(addresses: Tensor, active: Tensor) -> Tensor:
    """Smallest eigenvalue of each bank's Gram matrix, 1 where nothing is active: (B,).

    The identity in inactive slots hides nothing: addresses have norm at most 1, so no active minimum is above 1.
    """
    values: Tensor = torch.linalg.eigvalsh(padded(addresses.mT @ addresses, active))
    return values[:, 0]

"""What a bank accepts: every refusal is raised here, before the first token of a stretch, with nothing changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from memory.contract import MemoryRefused
from memory.nc01.limits import ALPHA_MAX
from memory.nc01.register import EXACT
from memory.nc01.transition import Tokens

_DTYPES = (torch.float32, torch.float64)


class NC01Refused(MemoryRefused):
    """Tokens, offers, sizes or a state that a protected-read bank does not take."""


def size(name: str, value: Any) -> int:
    """A whole number of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise NC01Refused(f"{name} is {value!r}: it must be a whole number, at least 1")
    return value


def storage(dtype: Any) -> torch.dtype:
    """float32 or float64."""
    if dtype not in _DTYPES:
        raise NC01Refused(f"dtype is {dtype}: banks are stored in torch.float32 or torch.float64")
    return torch.float32 if dtype == torch.float32 else torch.float64


def place(device: str | torch.device) -> torch.device:
    """A device on which a tensor can be made."""
    try:
        return torch.empty(0, device=device).device
    except (RuntimeError, AssertionError) as problem:
        raise NC01Refused(f"device {str(device)!r} cannot hold tensors on this machine: use 'cpu'") from problem


def norm_limit(dtype: torch.dtype) -> float:
    """1 and the rounding of a vector that was normalised in this type."""
    return 1.0 + 4.0 * torch.finfo(dtype).eps


def array(name: str, value: Any, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """A tensor of this shape and type; arrays of another type are refused, plain numbers are converted."""
    typed = isinstance(value, Tensor) or hasattr(value, "dtype")
    tensor = torch.as_tensor(value) if typed else torch.as_tensor(value, dtype=dtype)
    if tuple(tensor.shape) != shape:
        raise NC01Refused(f"{name} has shape {tuple(tensor.shape)}, expected {shape}")
    if tensor.dtype != dtype:
        raise NC01Refused(f"{name} has type {tensor.dtype}, this bank stores {dtype}: convert it first")
    return tensor.to(device)


def mask(name: str, value: Any, shape: tuple[int, ...], device: torch.device) -> Tensor | None:
    """A bool tensor of this shape; None stays None."""
    return None if value is None else array(name, value, shape, torch.bool, device)


def in_domain(tokens: Tokens, present: Tensor | None) -> Tokens:
    """The tokens with holes as identity transitions, once every present token lies in the domain [NC01 B3].

    A hole has key and value 0, alpha 1 and beta 0: X is multiplied by 1 and nothing is added.
    """
    alpha, beta = tokens.alpha, tokens.beta
    key_norm, value_norm = (torch.linalg.vector_norm(part, dim=-1) for part in (tokens.keys, tokens.values))
    largest = torch.finfo(alpha.dtype).max ** 0.5 / 256
    sound = {
        f"hold a number that is not finite, or a value of norm above {largest:.1g}: make them holes": (
            key_norm.isfinite() & (value_norm <= largest) & alpha.isfinite() & beta.isfinite()
        ),
        "have a key of norm above 1: normalise the keys": key_norm <= norm_limit(alpha.dtype),
        f"have alpha outside [0, {ALPHA_MAX}]: bring the gates into the domain": (alpha >= 0) & (alpha <= ALPHA_MAX),
        "have beta outside [0, 1]: bring the gates into the domain": (beta >= 0) & (beta <= 1),
    }
    good = torch.stack(tuple(sound.values())) | (False if present is None else ~present)
    for reason, count in zip(sound, (~good).flatten(1).sum(1).tolist(), strict=True):
        if count:
            raise NC01Refused(f"{count} of {alpha.numel()} tokens {reason}")
    if present is None:
        return tokens
    wide = present[..., None]
    keys, values = torch.where(wide, tokens.keys, 0), torch.where(wide, tokens.values, 0)
    return Tokens(keys, values, torch.where(present, alpha, 1), torch.where(present, beta, 0))


def offers(r: Any, v: Any, banks: int, widths: tuple[int, int], device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Offers (B, d_k) and values (B, d_v) in float64 and which banks have one (B,); None stands for no offer."""
    if r is None:
        r, v = [None] * banks, [None] * banks
    if isinstance(r, Sequence):
        return _listed(r, v, banks, widths, device)
    pair = []
    for name, value, width in zip(("r", "v"), (r, v), widths, strict=True):
        tensor = torch.as_tensor(value)
        if not tensor.is_floating_point():
            raise NC01Refused(f"{name} has type {tensor.dtype}: offers are floating-point arrays")
        pair.append(array(name, tensor, (banks, width), tensor.dtype, device))
    if pair[0].dtype != pair[1].dtype:
        raise NC01Refused(f"r has type {pair[0].dtype} and v has type {pair[1].dtype}: give both in one type")
    return pair[0].to(EXACT), pair[1].to(EXACT), torch.ones(banks, dtype=torch.bool, device=device)


def _listed(
    r: Sequence[Any], v: Any, banks: int, widths: tuple[int, int], device: torch.device
) -> tuple[Tensor, Tensor, Tensor]:
    if len(r) != banks or v is None or len(v) != banks:
        raise NC01Refused(
            f"offers for {len(r)} banks, expected {banks} keys and {banks} values, None where there is none"
        )
    offered = [key is not None for key in r]
    keys, values = (torch.zeros((banks, width), dtype=EXACT, device=device) for width in widths)
    for bank, given in enumerate(offered):
        if given:
            keys[bank] = array("r", torch.as_tensor(r[bank], dtype=EXACT), widths[:1], EXACT, device)
            values[bank] = array("v", torch.as_tensor(v[bank], dtype=EXACT), widths[1:], EXACT, device)
    return keys, values, torch.tensor(offered, device=device)

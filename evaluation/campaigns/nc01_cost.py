"""What protected reads cost a token, counted while the implementation's own functions run, and bytes of a bank."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from evaluation.campaigns.table import Findings, at_most, judged
from evaluation.published import NC01_PUBLISHED
from memory.nc01 import CP64, NC01Bank
from memory.nc01.transition import Tokens, Writes, segment_reads, solve_segment, writes

_ELEMENTWISE = ("add", "sub", "rsub", "mul", "div", "reciprocal", "sqrt", "pow", "clamp", "neg", "where", "gt", "le")
_REDUCTIONS = ("sum", "linalg_vector_norm")
_PRODUCTS = ("mm", "bmm", "baddbmm")


class Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts multiplications and additions of what runs inside: 2 m n k for products, one an element else."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count: int = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run the operation and add its cost."""
        out = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__.removesuffix("_")
        if name in _PRODUCTS:
            left = args[1 if name == "baddbmm" else 0]
            self.count += 2 * out.numel() * left.shape[-1]
        elif name in _REDUCTIONS:
            self.count += args[0].numel() * (2 if name == "linalg_vector_norm" else 1)
        elif name in _ELEMENTWISE and isinstance(out, Tensor):
            self.count += out.numel()
        return out


def counted(call: Callable[[], Any]) -> int:
    """Operations of one call."""
    mode = Operations()
    with mode:
        call()
    return mode.count


def extra_operations(slots: int) -> tuple[int, int]:
    """Operations that `slots` protections add to the write of one token, and to one read."""
    generator = torch.Generator().manual_seed(0)
    width = CP64["d_k"]
    k, v = (torch.randn((1, 1, width), generator=generator, dtype=torch.float64) for _ in range(2))
    gates = torch.full((1, 1), 0.9, dtype=torch.float64)
    tokens = Tokens(k / torch.linalg.vector_norm(k), v, gates, gates)
    before = torch.zeros((1, width, width), dtype=torch.float64)

    def costs(held: int) -> tuple[int, int]:
        basis = torch.zeros((1, width, held), dtype=torch.float64)
        pinned = torch.zeros((1, held, width), dtype=torch.float64)
        step: Writes = writes(tokens, basis, pinned, "sharp")
        segment = solve_segment(before, step)
        write = counted(lambda: writes(tokens, basis, pinned, "sharp"))
        return write, counted(lambda: segment_reads(tokens.keys, basis, pinned, before, step, segment))

    (write, read), (bare_write, bare_read) = costs(slots), costs(0)
    return write - bare_write, read - bare_read


def cost() -> Findings:
    """Operations a token at eight commitments, and bytes of a bank, beside the published ones."""
    write, read = extra_operations(CP64["slots"])
    size = NC01Bank(1, **CP64, dtype=torch.float32).bytes_per_bank
    where = f"128 x 128, {CP64['slots']} commitments, write {write:,} and read {read:,}"
    float64 = "addresses, targets and pins are kept in float64, on which boundaries decide: 24,576 bytes"
    published = NC01_PUBLISHED["operations"]
    return Findings(
        [
            judged("extra operations a token", where, write + read, at_most(1.1 * float(published.value)), published),
            judged(
                "bytes of a bank, float32",
                "128 x 128, 8 slots, register included",
                size,
                at_most(float(NC01_PUBLISHED["bytes"].value)),
                NC01_PUBLISHED["bytes"],
                float64,
            ),
        ],
        [{"part": "cost", "write": write, "read": read, "bytes": size}],
    )

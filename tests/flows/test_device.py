from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch

from flows.device import TOLERANCE, checked_device, self_check, small_problem
from flows.errors import FlowError

Answers = Mapping[str, np.ndarray[Any, np.dtype[np.float64]]]


@pytest.fixture(scope="module")
def right() -> Answers:
    return small_problem("cpu")


def wrong_on_cuda(right: Answers, name: str, spoil: Any) -> Any:
    def solve(device: str) -> Answers:
        return right if device == "cpu" else {**right, name: spoil(right[name])}

    return solve


def shifted(answer: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """One number off by a little more than rounding in another order gives."""
    off = answer.copy()
    off.flat[-1] += 10 * TOLERANCE * max(1.0, float(np.abs(answer).max()))
    return off


def single_precision(answer: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return answer.astype(np.float32).astype(np.float64)


def not_a_number(answer: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.full_like(answer, np.nan)


@pytest.mark.parametrize("spoil", [shifted, single_precision, not_a_number, lambda answer: answer[:1]])
@pytest.mark.parametrize("memory", ["support-vector", "least-squares", "protected"])
def test_a_device_that_computes_something_else_is_refused_in_one_line(right: Answers, memory: str, spoil: Any) -> None:
    with pytest.raises(FlowError) as refusal:
        self_check("cuda", wrong_on_cuda(right, f"the {memory} memories", spoil))
    assert f"the check of the {memory} memories" in str(refusal.value)
    assert "use --device cpu" in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_device_that_sums_in_another_order_passes(right: Answers) -> None:
    self_check(
        "cuda", lambda device: {name: answer * (1 + (device != "cpu") * 1e-14) for name, answer in right.items()}
    )


def test_the_check_asks_every_kind_of_memory_and_none_answers_with_zeros(right: Answers) -> None:
    assert len(right) == 3
    assert all(np.abs(answer).max() > 0.1 for answer in right.values())


def test_auto_is_cuda_where_one_is_present_and_cpu_elsewhere(monkeypatch: pytest.MonkeyPatch, right: Answers) -> None:
    asked: list[str] = []

    def solve(device: str) -> Answers:
        asked.append(device)
        return right

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert checked_device("auto", solve) == "cpu"
    assert asked == []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert checked_device("auto", solve) == "cuda"
    assert asked == ["cpu", "cuda"]
    assert checked_device("cpu", solve) == "cpu"


def test_cuda_is_refused_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(FlowError, match="no such device"):
        checked_device("cuda")

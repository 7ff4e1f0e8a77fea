"""Training of the sequence models: fixed steps as published, or until the validation patients say stop.

Deterministic on the CPU from the seed: one thread, seeded batches, crops drawn from the same generator.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from evaluation.errors import EvaluationError
from evaluation.prediction.measures import auroc

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

CONTEXT = 168  # hours of context at most when predicting; longer stays are cut into overlapping stretches
STRIDE = 84  # and the length of a training crop


@dataclass(frozen=True)
class Hourly:
    """One stay for a sequence model: inputs (n, channels), label (n,), and which hours count (n,)."""

    inputs: Floats
    label: Flags
    counts: Flags


@dataclass(frozen=True)
class Schedule:
    """Adam with class-weighted cross-entropy: steps, stays a batch, rate; patience in checks, None for fixed steps."""

    steps: int
    batch: int
    rate: float
    check_every: int = 20
    patience: int | None = None


CAUSAL = Schedule(steps=400, batch=8, rate=2e-3, check_every=20, patience=5)


def train(
    model: nn.Module, stays: Sequence[Hourly], validation: Sequence[Hourly], schedule: Schedule, seed: int
) -> nn.Module:
    """Train `model` in place and return it, in the state with the best validation AUROC where the schedule watches it.

    Raises EvaluationError unless the training hours that count hold both classes.
    """
    weight = _positive_weight(stays)
    optimiser = torch.optim.Adam(model.parameters(), lr=schedule.rate)
    generator = np.random.default_rng(seed)
    best, kept, waited = -np.inf, _copied(model), 0
    for step in range(1, schedule.steps + 1):
        _step(model, optimiser, _batch(stays, schedule.batch, generator), weight)
        if schedule.patience is None or step % schedule.check_every:
            continue
        reached = _validation(model, validation)
        waited = 0 if reached > best else waited + 1
        if reached > best:
            best, kept = reached, _copied(model)
        if waited >= schedule.patience:
            break
    if schedule.patience is not None:
        model.load_state_dict(kept)
    return model.eval()


@torch.no_grad()
def predict(model: nn.Module, inputs: Floats) -> Floats:
    """Return probabilities (n,) for one stay's inputs (n, channels).

    Stretches of CONTEXT hours overlap, and an hour takes the stretch that gives it most past: at least STRIDE hours, or
    all of the stay so far.
    """
    probability = np.empty(len(inputs))
    for start in range(0, max(1, len(inputs) - STRIDE), STRIDE):
        stretch = torch.from_numpy(inputs[start : start + CONTEXT]).float().unsqueeze(0)
        found = torch.sigmoid(model(stretch))[0].double().numpy()
        fresh = 0 if start == 0 else CONTEXT - STRIDE
        probability[start + fresh : start + len(found)] = found[fresh:]
    return probability


def _positive_weight(stays: Sequence[Hourly]) -> Tensor:
    labels = np.concatenate([stay.label[stay.counts] for stay in stays]) if stays else np.empty(0, bool)
    positives = int(labels.sum())
    if not 0 < positives < labels.size:
        raise EvaluationError(
            f"prediction: {positives} of {labels.size} training hours are positive; a model needs both classes"
        )
    return torch.tensor((labels.size - positives) / positives, dtype=torch.float32)


def _batch(stays: Sequence[Hourly], size: int, generator: np.random.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Stays drawn without replacement, cropped to STRIDE hours at a random place and padded at the end."""
    drawn = generator.choice(len(stays), min(size, len(stays)), replace=False)
    crops = []
    for stay in (stays[int(index)] for index in drawn):
        start = int(generator.integers(max(len(stay.label) - STRIDE, 0) + 1))
        crops.append((stay, slice(start, start + STRIDE)))
    parts = ([torch.from_numpy(getattr(stay, name)[cut]).float() for stay, cut in crops] for name in _PARTS)
    inputs, label, counts = (nn.utils.rnn.pad_sequence(part, batch_first=True) for part in parts)
    return inputs, label, counts


_PARTS = ("inputs", "label", "counts")


def _step(
    model: nn.Module, optimiser: torch.optim.Optimizer, batch: tuple[Tensor, Tensor, Tensor], weight: Tensor
) -> None:
    inputs, label, counts = batch
    loss = nn.functional.binary_cross_entropy_with_logits(
        model.train()(inputs), label, weight=counts, pos_weight=weight, reduction="sum"
    )
    optimiser.zero_grad()
    torch.autograd.backward(loss / counts.sum().clamp_min(1))
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimiser.step()


def _validation(model: nn.Module, stays: Sequence[Hourly]) -> float:
    """AUROC over the validation hours; -1 where it is not defined, so that the first check is kept."""
    model.eval()
    found = [predict(model, stay.inputs)[stay.counts] for stay in stays]
    label = [stay.label[stay.counts] for stay in stays]
    reached = auroc(np.concatenate(label), np.concatenate(found)) if stays else None
    return -1.0 if reached is None else reached


def _copied(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}

"""The rows of the causal protocol: every model is fitted on training patients and predicts the hours of test patients.

Validation patients choose when to stop; test patients choose nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression

from evaluation.errors import EvaluationError
from evaluation.prediction.features import Limits, current_margin, sequence_inputs, standardised, window_features
from evaluation.prediction.hours import Split, StayHours, label
from evaluation.prediction.measures import auroc
from evaluation.prediction.networks import network
from evaluation.prediction.training import CAUSAL, Hourly, Schedule, predict, train
from evaluation.retention import CHANNELS, EVENT_CHANNELS

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

ITERATIONS = 150  # of gradient boosting at most; validation patients choose how many are used
SEQUENCES = ("lstm", "gru", "softmax", "delta", "linear", "support-vector")


@dataclass(frozen=True)
class Side:
    """The hours of one split that count: label, patient (n,), window features (n, columns), margin (n,), sequences."""

    truth: Flags
    patient: NDArray[np.int64]
    features: Floats
    margin: Floats
    sequences: list[Hourly]


Sides = dict[Split, Side]
Fit = Callable[[Sides, int, Schedule], Floats]  # probabilities or scores of the test hours that count


def sides(stays: Sequence[StayHours], limits: Limits) -> Sides:
    """Return the three splits; scales come from training hours alone.

    Raises EvaluationError for a split without stays or with one class, and for a patient in two splits.
    """
    parts: dict[Split, list[StayHours]] = {"train": [], "validation": [], "test": []}
    for stay in stays:
        parts[stay.split].append(stay)
    if len({stay.patient for stay in stays}) < sum(len({stay.patient for stay in part}) for part in parts.values()):
        raise EvaluationError("prediction: a patient is in two splits; build the cohort again")
    if empty := [name for name, part in parts.items() if not part]:
        raise EvaluationError(f"prediction: no stays in split {empty[0]}; use a larger source")
    values = np.concatenate([stay.values for stay in parts["train"]])
    spread = {c: float(values[:, CHANNELS.index(c)].std()) or 1.0 for c in EVENT_CHANNELS}
    found: Sides = {name: _side(part, limits, spread) for name, part in parts.items()}
    for name, side in found.items():
        if not 0 < side.truth.sum() < len(side.truth):
            raise EvaluationError(f"prediction: hours of split {name} are all of one class; use a larger source")
    return found


def _side(stays: Sequence[StayHours], limits: Limits, spread: dict[str, float]) -> Side:
    margins = [current_margin(stay, limits, spread) for stay in stays]
    labels = [label(stay.events("measured")) for stay in stays]
    rows = [window_features(stay, margin, "measured") for stay, margin in zip(stays, margins, strict=True)]
    counts = np.concatenate([found.counts for found in labels])
    inputs = [sequence_inputs(stay, careful=True) for stay in stays]
    return Side(
        truth=np.concatenate([found.ahead for found in labels])[counts],
        patient=np.repeat([stay.patient for stay in stays], [len(stay.hours) for stay in stays])[counts],
        features=np.concatenate(rows)[counts],
        margin=np.concatenate(margins)[counts],
        sequences=[Hourly(x, found.ahead, found.counts) for x, found in zip(inputs, labels, strict=True)],
    )


def prevalence(parts: Sides, seed: int, schedule: Schedule) -> Floats:
    """The share of training hours with an event ahead, for every hour."""
    return np.full(len(parts["test"].truth), parts["train"].truth.mean())


def margin(parts: Sides, seed: int, schedule: Schedule) -> Floats:
    """The current margin; a score in standard deviations, no probability."""
    return parts["test"].margin


def logistic(parts: Sides, seed: int, schedule: Schedule) -> Floats:
    """Logistic regression on the standardised window features, with scikit-learn's ridge a hundredth as wide."""
    seen = parts["train"].features
    model = LogisticRegression(C=0.01, max_iter=500).fit(standardised([seen], seen), parts["train"].truth)
    found: Floats = model.predict_proba(standardised([seen], parts["test"].features))[:, 1]
    return found


def boosting(parts: Sides, seed: int, schedule: Schedule) -> Floats:
    """Histogram gradient boosting on the window features, stopped where the validation AUROC is best."""
    watched = parts["validation"]
    model = HistGradientBoostingClassifier(
        learning_rate=0.05, max_iter=ITERATIONS, max_leaf_nodes=15, early_stopping=False, random_state=seed
    ).fit(parts["train"].features, parts["train"].truth)
    reached = [auroc(watched.truth, stage[:, 1]) or 0.0 for stage in model.staged_predict_proba(watched.features)]
    stages = model.staged_predict_proba(parts["test"].features)
    found: Floats = next(islice(stages, int(np.argmax(reached)), None))[:, 1]
    return found


def sequence(name: str) -> Fit:
    """A model of NETWORKS, trained by `schedule` from `seed`."""

    def fit(parts: Sides, seed: int, schedule: Schedule) -> Floats:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = network(name, parts["train"].sequences[0].inputs.shape[1])
        train(model, parts["train"].sequences, parts["validation"].sequences, schedule, seed)
        return np.concatenate([predict(model, stay.inputs)[stay.counts] for stay in parts["test"].sequences])

    return fit


ROWS: dict[str, Fit] = {
    "prevalence": prevalence,
    "current margin": margin,
    "logistic regression": logistic,
    "gradient boosting": boosting,
    **{name: sequence(name) for name in SEQUENCES},
}
SEEDED = frozenset(SEQUENCES)  # the other rows are the same from any seed


def predictions(
    parts: Sides, rows: Sequence[str], seeds: int, schedule: Schedule = CAUSAL, tell: Callable[[str], object] = str
) -> dict[str, list[Floats]]:
    """Return the test scores of each row, one (n,) a seed; `tell` hears the name of the row that begins."""
    found = {}
    for name in rows:
        tell(name)
        found[name] = [ROWS[name](parts, seed, schedule) for seed in range(seeds if name in SEEDED else 1)]
    return found

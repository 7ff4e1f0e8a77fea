"""Every published number that the product prints beside its own, with its source and conditions.

A number that this product measured, on whatever data, does not belong here.
"""

from __future__ import annotations

from dataclasses import dataclass

SVA = "Ramesh, Forgetful Attention, arXiv 2607.12204"
COHORT = "MIMIC-IV v3.1, 1,465 eligible stays of 1,500 drawn, 222,935 hourly tokens"

# The published retention protocol [SVA].
NU = 0.3
SIGMA = 3.0  # kernel width in pooled standard deviations
SUPPORT_THRESHOLD = 1e-7  # a token counts as support above this coefficient
DRAWS = 10_000
SEED = 0


@dataclass(frozen=True)
class PublishedCohort:
    """The cohort behind the published retention figures."""

    stays_drawn: int
    stays: int
    tokens: int
    source: str


@dataclass(frozen=True)
class PublishedRetention:
    """Published retention of one policy; `budget` is the share of a stay's hours kept."""

    channel: str
    policy: str
    retention: float
    budget: float
    stays: int
    source: str = SVA
    conditions: str = f"{COHORT}; fixed context, nu {NU}, width {SIGMA:g}; filled hours count"


@dataclass(frozen=True)
class PublishedContrast:
    """Published paired difference of two policies with its 95 percent percentile interval."""

    channel: str
    left: str
    right: str
    unit: str
    mean: float
    low: float
    high: float
    groups: int
    draws: int
    source: str = SVA
    conditions: str = f"{COHORT}; fixed context, nu {NU}, width {SIGMA:g}; filled hours count"


COHORT_PUBLISHED = PublishedCohort(stays_drawn=1_500, stays=1_465, tokens=222_935, source=SVA)

RETENTION_PUBLISHED = (
    PublishedRetention("composite", "svdd", 0.80, budget=0.33, stays=1_329),
    PublishedRetention("composite", "density", 0.05, budget=0.33, stays=1_329),
    PublishedRetention("composite", "recency", 0.30, budget=0.33, stays=1_329),
    PublishedRetention("composite", "random", 0.34, budget=0.33, stays=1_329),
    PublishedRetention("spo2", "svdd", 0.4644, budget=0.3226, stays=718),
    PublishedRetention("spo2", "density", 0.2254, budget=0.3226, stays=718),
    PublishedRetention("spo2", "recency", 0.4088, budget=0.3226, stays=718),
    PublishedRetention("spo2", "random", 0.3326, budget=0.3226, stays=718),
)

CONTRASTS_PUBLISHED = (
    PublishedContrast("spo2", "svdd", "density", "stay", 0.2390, 0.1944, 0.2835, groups=718, draws=DRAWS),
)


@dataclass(frozen=True)
class PublishedAudit:
    """Published deletion audit of one regime: absolute score errors of the decrement against its own refit."""

    attempted: int
    completed: int
    partition_agreement: float
    error_median: float
    error_mean: float
    error_worst: float
    decay_median: float  # error of multiplying the deleted coefficients by 0.01 instead
    source: str = SVA
    conditions: str = "two keys removed; probes retained, removed, retained + N(0, 0.1); nu 0.4, width 2"


AUDIT_PUBLISHED = {
    "gaussian": PublishedAudit(300, 300, 0.99, 2.4e-9, 3.1e-5, 6.4e-3, 8.3e-2),
    "near_duplicates": PublishedAudit(300, 300, 0.52, 5.7e-7, 3.1e-5, 9.6e-4, 2.4e-1),
    "hourly_distinct": PublishedAudit(300, 299, 0.98, 1.6e-9, 5.6e-5, 1.1e-2, 1.5e-1),
    "learned_keys": PublishedAudit(300, 300, 1.00, 4.5e-13, 9.7e-13, 1.1e-11, 2.2e-2),
}


@dataclass(frozen=True)
class PublishedLatency:
    """Published median latency of deleting one token, reserve tokens included, and of a refit."""

    delete_seconds: float
    refit_seconds: float
    source: str = SVA
    conditions: str = "d 6, nu 0.4, width 2, 30 uniform-random removals, Apple M3 Ultra"


DELETION_LATENCY_PUBLISHED = {
    120: PublishedLatency(0.30e-3, 7.8e-3),
    256: PublishedLatency(0.92e-3, 22e-3),
    384: PublishedLatency(1.04e-3, 59e-3),
    512: PublishedLatency(0.69e-3, 159e-3),
}


@dataclass(frozen=True)
class PublishedFigure:
    """One published figure of a campaign and the conditions that its source names."""

    value: float | int | str
    source: str
    conditions: str


NC01 = "NC01/CP64-v2.0"
VLA = "Pandey and Singh, arXiv 2605.11196, and its page"
SVDA = "Arampatzakis, Sevetlidis and Pavlidis, TMLR 2026"


def _figures(source: str, conditions: str, **values: float | int | str) -> dict[str, PublishedFigure]:
    return {name: PublishedFigure(value, source, conditions) for name, value in values.items()}


NC01_PUBLISHED = {
    **_figures(
        NC01,
        "seven regimes x 3 seeds x 4,096 tokens x 2 precisions; generators not published",
        transitions=172_032,
        retention_float64=0.0156097412,
        retention_float32=0.0156098802,
        admission_float64=0.0156097412,
        admission_float32=0.0156098076,
        violations=0,
        admissions=1_101,
        norm=11.5878,
        out_of_domain=3,
    ),
    **_figures(NC01, "24 banks x 512 tokens x 2 precisions", stress_error=0.01561075, stress_norm=63.98),
    **_figures(NC01, "32 banks x 32,832 steps from zero", zero_admissions=2_080, zero_breaches=0),
    **_figures(
        NC01,
        "CPU and GPU, sequential and segment, 21 x 1,024 tokens, 86,016 transitions",
        path_gap_float32=1.76e-6,
        path_decisions_changed=0,
    ),
    **_figures(NC01, "512 hard fp32 admissions, CPU", hard_over=6, hard_worst=0.015635001),
    **_figures(NC01, "local checks", reader=5.6e-16, variational=2.2e-16, active_guard=2.3e-15),
    **_figures(NC01, "128 x 128, eight commitments; disputed by its review", operations=15_500, bytes=65_536 + 10_652),
}

VLA_PUBLISHED = {
    **_figures(
        VLA,
        "random input, T = 1,000",
        linear_norm=1_630,
        vla_norm=15,
        ratio=110,
        penalty_first=56,
        penalty_last=10,
        jacobian=1.0,
    ),
    **_figures(VLA, "trained, 16 and 48 pairs, keys not normalised", keys_not_normalised="NaN"),
    **_figures(VLA, "page", kernel_speed=14, crossing=43_000),
}

RECALL_PUBLISHED = {
    (memory, n): PublishedFigure(value, VLA, "exact match after training")
    for memory, values in {
        "VLA unit": {4: 1.0, 8: 1.0, 12: 1.0, 24: 1.0, 16: 0.990, 48: 0.044},
        "delta": {4: 0.97, 8: 0.73, 12: 0.10, 24: 0.010},
        "linear": {4: 0.27, 24: 0.08},
        "penalty frozen": {16: 0.091, 48: 0.043},
    }.items()
    for n, value in values.items()
}
SUPPORT_FRACTION_PUBLISHED = PublishedFigure(1.0, SVA, "distinct keys, ten pairs, after training")

SPECTRAL_PUBLISHED = _figures(
    SVDA,
    "sigma = 4, 2, 1, 0.5, rho = 0.9, seed 7",
    kept="0, 1",
    energy=0.941176,
    energy_first=0.752941,
    masked_less_selected=0.0,
    score_error=0.370472,
    row_change=0.211509,
    renormalised=1.70289,
)


@dataclass(frozen=True)
class PublishedTask:
    """Published recall of one policy on one synthetic task."""

    task: str
    policy: str
    value: float
    source: str = SVA


TASKS_PUBLISHED = (
    PublishedTask("skewed redundancy", "support", 0.861),
    PublishedTask("skewed redundancy", "oracle attention mass", 0.319),
    PublishedTask("skewed redundancy", "random", 0.472),
    PublishedTask("skewed redundancy", "recency", 0.0),
    PublishedTask("distinct keys", "gate", 0.955),
    PublishedTask("distinct keys", "no gate", 0.970),
    PublishedTask("distinct keys", "softmax", 0.535),
    PublishedTask("distinct keys", "support fraction", 1.00),
)

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

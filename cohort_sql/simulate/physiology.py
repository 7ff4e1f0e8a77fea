"""The latent vitals of an invented stay: what its patient's body does, before anyone charts it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.signal import lfilter

FloatArray = npt.NDArray[np.float64]

# Order of every row of numbers below: hr, sbp, dbp, rr, spo2, temp (bpm, mmHg, mmHg, breaths/min, %, degrees Celsius).
_BASELINE = np.array([84.0, 121.0, 64.0, 18.0, 96.8, 36.9])
_BETWEEN_STAYS = np.array([12.0, 15.0, 9.0, 2.6, 1.2, 0.30])
_WITHIN_STAY = np.array([7.5, 11.0, 6.5, 2.6, 1.1, 0.30])
_CIRCADIAN = np.array([3.0, 4.0, 2.5, 0.7, -0.2, 0.25])
_LOWEST = np.array([28.0, 48.0, 22.0, 5.0, 62.0, 32.5])
_HIGHEST = np.array([210.0, 238.0, 145.0, 52.0, 100.0, 41.3])
_PEAK_CLOCK_HOUR = 17.0
_PULSE_PRESSURE = 14.0

_CORRELATION = np.array(
    [
        [1.00, -0.15, 0.00, 0.35, -0.20, 0.35],
        [-0.15, 1.00, 0.70, 0.00, 0.05, -0.05],
        [0.00, 0.70, 1.00, 0.00, 0.05, -0.05],
        [0.35, 0.00, 0.00, 1.00, -0.35, 0.20],
        [-0.20, 0.05, 0.05, -0.35, 1.00, -0.10],
        [0.35, -0.05, -0.05, 0.20, -0.10, 1.00],
    ]
)
_MIXING = np.linalg.cholesky(_CORRELATION)
# Share of the variance and hour-to-hour autocorrelation of the slow and of the fast part.
_SLOW, _FAST = (0.6, 0.97), (0.4, 0.55)

EPISODES = ("none", "sepsis", "respiratory", "haemorrhage", "terminal")
_EPISODE_CHANCE = np.array([0.45, 0.35, 0.20])
_EPISODES_PER_DAY = 0.22
_EFFECT = np.array(
    [
        [0.0, 0.0, 0.0, 0.0, 0.0, 0.0],
        [36.0, -34.0, -18.0, 9.0, -3.0, 1.8],
        [20.0, 10.0, 4.0, 13.0, -8.0, 0.2],
        [40.0, -40.0, -20.0, 6.0, -1.0, -0.7],
        [-38.0, -55.0, -28.0, -10.0, -16.0, -1.6],
    ]
)
_VISIBLE = 0.2


class Latent(NamedTuple):
    """Hourly truth of one stay: `vitals` (hours, 6) in clinical units, `episode` codes and `severity` (hours,)."""

    vitals: FloatArray
    episode: npt.NDArray[np.int8]
    severity: FloatArray


def latent_vitals(rng: np.random.Generator, hours: int, intime_clock: float, dying: bool) -> Latent:
    """Draw the vitals of one stay of `hours` hours that begins at clock hour `intime_clock`.

    Two first-order autoregressions (slow drift, fast variation) with correlated innovations ride on a stay baseline
    and a circadian wave; deterioration episodes are added on top. The numbers are plausible, fitted to no patient.
    """
    baseline = _BASELINE + _BETWEEN_STAYS * (_MIXING @ rng.standard_normal(6))
    clock = intime_clock + np.arange(hours) + 0.5
    wave = np.cos(2.0 * np.pi * (clock - _PEAK_CLOCK_HOUR) / 24.0)
    noise = sum(_autoregression(rng, hours, share, memory) for share, memory in (_SLOW, _FAST))
    shift, episode, severity = _deterioration(rng, hours, dying)
    vitals = baseline + wave[:, None] * _CIRCADIAN + noise * _WITHIN_STAY + shift
    vitals = np.clip(vitals, _LOWEST, _HIGHEST)
    vitals[:, 2] = np.minimum(vitals[:, 2], vitals[:, 1] - _PULSE_PRESSURE)
    return Latent(vitals, episode, severity)


def _autoregression(rng: np.random.Generator, hours: int, share: float, memory: float) -> FloatArray:
    """Draw a stationary AR(1) of correlated channels (hours, 6) whose variance is `share`."""
    innovations = rng.standard_normal((hours, 6)) @ _MIXING.T
    innovations[1:] *= np.sqrt(1.0 - memory**2)
    filtered: FloatArray = lfilter([np.sqrt(share)], [1.0, -memory], innovations, axis=0)
    return filtered


def _deterioration(
    rng: np.random.Generator, hours: int, dying: bool
) -> tuple[FloatArray, npt.NDArray[np.int8], FloatArray]:
    """Sum the episodes of a stay: shift (hours, 6), code of the severest episode in each hour, its severity."""
    codes = list(1 + rng.choice(3, size=rng.poisson(_EPISODES_PER_DAY * hours / 24.0), p=_EPISODE_CHANCE))
    courses = [_episode_course(rng, hours) for _ in codes]
    if dying:
        codes.append(EPISODES.index("terminal"))
        courses.append(_terminal_course(rng, hours))
    if not codes:
        return np.zeros((hours, 6)), np.zeros(hours, dtype=np.int8), np.zeros(hours)
    course = np.stack(courses)
    severest = course.argmax(axis=0)
    severity = course.max(axis=0)
    episode = np.where(severity > _VISIBLE, np.asarray(codes, dtype=np.int8)[severest], np.int8(0))
    return course.T @ _EFFECT[codes], episode, severity


def _episode_course(rng: np.random.Generator, hours: int) -> FloatArray:
    """Draw one rise, plateau and recovery; the peak severity is about 1."""
    onset = rng.uniform(0.0, hours)
    rise, plateau, recovery = rng.lognormal(np.log([4.0, 8.0, 8.0]), 0.5)
    since = np.arange(hours) - onset
    ramp = np.clip(since / rise, 0.0, 1.0)
    relief = np.exp(-np.maximum(since - rise - plateau, 0.0) / recovery)
    course: FloatArray = rng.lognormal(0.0, 0.35) * ramp * relief
    return course


def _terminal_course(rng: np.random.Generator, hours: int) -> FloatArray:
    """Draw the last decline of a patient who dies at the end of the stay."""
    course: FloatArray = np.exp(-np.arange(hours, 0, -1) / rng.uniform(3.0, 10.0))
    return course

"""After a deletion, a ward's score and readout tell the deleted patients' hours from never-seen ones by chance only.

Claimed for the state of the ward after the deletion, and for nothing else: whoever holds the state before it as well
can compare the two.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy.stats import rankdata

from cohort_sql.simulate import simulate
from cohort_sql.source import find_source
from evaluation.retention import CHANNELS
from flows.run.layout import RunLayout
from flows.settings import Settings
from flows.steps import cohort
from flows.steps.preflight import opened_run
from flows.steps.wards import Ward, feed
from memory.svdd import SVDDMemory

Array = np.ndarray[Any, Any]
Attack = Callable[[SVDDMemory, "Hours"], Array]
DRAWS = 400


@dataclass(frozen=True)
class Hours:
    """Hours of some patients: keys (n, d), values (n, d_v), patient, stay and hour of each (n,)."""

    keys: Array
    values: Array
    patient: Array
    stay: Array
    hour: Array

    def of(self, patients: Array) -> Hours:
        kept = np.isin(self.patient, patients)
        return Hours(*(part[kept] for part in (self.keys, self.values, self.patient, self.stay, self.hour)))


@pytest.fixture(scope="module")
def hours(tmp_path_factory: pytest.TempPathFactory) -> Hours:
    """Every sixth hour of the first two days of invented patients, as a cohort standardises them."""
    place = tmp_path_factory.mktemp("members")
    simulate(place / "source", patients=60, seed=3)
    layout, settings = RunLayout(place / "run"), Settings.model_validate({"buckets": 2})
    with opened_run(layout, find_source(place / "source"), settings):
        cohort.build(layout, settings)
    owner = dict(pl.read_parquet(layout.cohort / "stays.parquet").select("stay_id", "subject_id").iter_rows())
    files = sorted(layout.cohort.glob("hourly/*/*.parquet"))
    rows = pl.read_parquet(files, hive_partitioning=False).filter((pl.col("hour") < 48) & (pl.col("hour") % 6 == 0))
    rows = rows.sort("stay_id", "hour")
    stay = rows["stay_id"].to_numpy()
    return Hours(
        rows.select(f"{channel}_z" for channel in CHANNELS).to_numpy().astype(np.float64),
        rows.select(CHANNELS).to_numpy().astype(np.float64),
        np.array([owner[number] for number in stay.tolist()]),
        stay,
        rows["hour"].cast(pl.Int64).to_numpy(),
    )


@dataclass(frozen=True)
class Game:
    """A ward of leaving and staying patients, the same after the first have left, and one that never saw these."""

    before: Ward
    after: Ward
    never: Ward
    leaving: Hours
    control: Hours


def played(hours: Hours, sigma: float) -> Game:
    """Patients dealt into three equal hands: leaving, staying, never seen."""
    patients = np.random.default_rng(0).permutation(np.unique(hours.patient))
    leaving, staying, control = (hours.of(hand) for hand in np.array_split(patients, 3))
    settings = Settings.model_validate({"ward_hours": 200, "sigma": sigma})
    both = hours.of(np.concatenate([leaving.patient, staying.patient]))
    before, never = (feed(own.keys, own.values, own.stay, own.hour, settings) for own in (both, staying))
    after, _ = before.without(np.unique(leaving.stay).tolist())
    return Game(before, after, never, leaving, control)


def by_score(memory: SVDDMemory, hours: Hours) -> Array:
    return memory.score(hours.keys)


def by_readout(memory: SVDDMemory, hours: Hours) -> Array:
    """The nearer the readout to the value, the likelier a member; in spreads of the values."""
    return -np.linalg.norm((memory.read(hours.keys) - hours.values) / hours.values.std(axis=0), axis=1)


def auc(members: Array, others: Array) -> float:
    """Probability that a member has the higher value (Mann and Whitney 1947, U over n m)."""
    ranks = rankdata(np.concatenate([members, others]))[: len(members)]
    return float((ranks.sum() - len(members) * (len(members) + 1) / 2) / (len(members) * len(others)))


def interval(attack: Attack, ward: Ward, game: Game) -> tuple[float, float]:
    """95 % percentile interval of the AUC, whole patients drawn again: hours of one patient are alike."""
    draw = np.random.default_rng(1)
    hands = []
    for side in (game.leaving, game.control):
        told = attack(ward.memory, side)
        hands.append([told[side.patient == patient] for patient in np.unique(side.patient)])
    found = [auc(*(drawn_again(hand, draw) for hand in hands)) for _ in range(DRAWS)]
    low, high = np.quantile(found, [0.025, 0.975])
    return float(low), float(high)


def drawn_again(hand: list[Array], draw: np.random.Generator) -> Array:
    return np.concatenate([hand[at] for at in draw.integers(0, len(hand), len(hand))])


@pytest.mark.parametrize("sigma", [0.5, 0.8])
@pytest.mark.parametrize("attack", [by_score, by_readout])
def test_an_attack_that_works_before_a_deletion_is_at_chance_after_it(
    hours: Hours, attack: Attack, sigma: float
) -> None:
    """Narrow kernels, at which a ward gives its members away while it holds them: the attack can succeed."""
    game = played(hours, sigma)
    before, after = (interval(attack, ward, game) for ward in (game.before, game.after))
    assert before[0] > 0.6
    assert after[0] <= 0.5 <= after[1]


@pytest.mark.parametrize("attack", [by_score, by_readout])
def test_at_the_kernel_of_a_study_it_is_at_chance_after_a_deletion_too(hours: Hours, attack: Attack) -> None:
    game = played(hours, Settings().sigma)
    low, high = interval(attack, game.after, game)
    assert low <= 0.5 <= high


@pytest.mark.parametrize("sigma", [0.5, 0.8, 3.0])
def test_no_attack_on_the_score_tells_a_deletion_from_never_having_seen_them(hours: Hours, sigma: float) -> None:
    game = played(hours, sigma)
    allowed = sum(ward.memory.certificate().score_bound for ward in (game.after, game.never))
    assert allowed < 1e-9
    for side in (game.leaving, game.control):
        assert np.abs(game.after.memory.score(side.keys) - game.never.memory.score(side.keys)).max() <= allowed


def test_whoever_holds_both_states_sees_who_left(hours: Hours) -> None:
    """What does not hold: hours that scored high and do no longer were of somebody who left."""
    game = played(hours, 0.5)
    sides = (game.leaving, game.control)
    fell = [game.before.memory.score(side.keys) - game.after.memory.score(side.keys) for side in sides]
    assert auc(*fell) > 0.9

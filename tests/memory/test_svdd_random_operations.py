"""Long random lives of a memory, full of copies, ties and extreme caps and widths, against fits and the oracle."""

from __future__ import annotations

import numpy as np
import pytest
from streams import lattice

from evaluation.oracle_svdd import deviation, solve
from memory.svdd import SVDDMemory

KINDS = {
    "lattice": lambda rng: lattice(rng, 1)[0],
    "cube": lambda rng: rng.integers(0, 2, size=6).astype(float),
    "near": lambda rng: rng.integers(0, 3, size=3) + rng.normal(size=3) * 10.0 ** rng.integers(-12, -1),
    "gaussian": lambda rng: rng.normal(size=4),
    "circle": lambda rng: np.array([np.cos(t := np.pi * rng.integers(0, 24) / 12), np.sin(t)]),
}


class Life:
    """A memory beside a plain record of what it should hold."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.kind = list(KINDS)[seed % len(KINDS)]
        cap, width = self.rng.choice([1, 2, 3, 5, 7.5, 14.4, 20]), self.rng.choice([0.3, 1.0, 3.0, 10.0, 100.0])
        self.memory = SVDDMemory(1 / float(cap), float(width))
        self.held, self.born = {}, 0

    def step(self):
        chance = self.rng.random()
        if chance < 0.65 or not self.held:
            key = KINDS[self.kind](self.rng)
            self.held[self.born] = key
            self.born += 1
            return self.memory.admit(key, id=self.born - 1)
        if chance < 0.85:
            count = min(len(self.held), int(self.rng.integers(1, 5)))
            leaving = self.rng.choice(list(self.held), count, replace=False).tolist()
            for token in leaving:
                del self.held[token]
            return self.memory.delete(leaving, below_capacity="collect")
        return self.memory.prune() if self.memory.ready else None

    def keys(self):
        return np.array([self.held[token] for token in sorted(self.held)])


@pytest.mark.parametrize("seed", range(40))
def test_a_random_life_always_equals_a_fresh_fit(seed):
    life = Life(seed)
    for number in range(120):
        life.step()
        assert len(life.memory) == len(life.held)
        if number % 12 or not life.memory.ready:
            continue
        keys, memory = life.keys(), life.memory
        fresh = SVDDMemory(memory.C, memory.sigma).fit(keys)
        allowed = memory.certificate().score_bound + fresh.certificate().score_bound
        assert np.abs(memory.score(keys) - fresh.score(keys)).max() <= allowed
        assert sorted([*memory.ids.tolist(), *memory.cold_ids]) == sorted(life.held)


@pytest.mark.parametrize("seed", range(100, 110))
def test_a_random_life_ends_at_the_proved_solution(seed):
    life = Life(seed)
    while not life.memory.ready or life.born < 60:
        life.step()
    keys = life.keys()
    truth = solve(keys, life.memory.C, life.memory.sigma)
    error = deviation(truth.exact_score(keys), life.memory.score(keys)).max()
    assert error <= life.memory.certificate().score_bound


def test_long_lives_hardly_ever_leave_the_walk():
    paths = []
    for seed in range(20):
        life = Life(1000 + seed)
        paths += [outcome.path for _ in range(120) if (outcome := life.step()) is not None]
    assert sum(path in ("repaired", "resolved") for path in paths) <= len(paths) // 500

"""Compares memories in lock-step with single ones."""

from __future__ import annotations

import numpy as np


def assert_same(batch, singles, queries):
    """Same tokens, and scores within both certificates, for every memory that has a gate."""
    for i, single in enumerate(singles):
        member = batch.memory(i)
        assert {*member.ids.tolist(), *member.cold_ids} == {*single.ids.tolist(), *single.cold_ids}
        assert member.ready == single.ready == batch.ready[i]
        if not single.ready:
            continue
        mine, theirs = member.certificate(), single.certificate()
        allowed = mine.score_bound + theirs.score_bound
        assert np.abs(member.score(queries[i]) - single.score(queries[i])).max() <= allowed
        # Of two right states one certificate may be the sharper one, but not by orders of magnitude.
        assert mine.score_bound <= 20.0 * theirs.score_bound + 1e-13
        assert mine.mass_error < 1e-12

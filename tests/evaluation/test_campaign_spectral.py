"""The spectral campaign reproduces the published example, and notices a rule that keeps too little."""

from __future__ import annotations

import importlib

import numpy as np

from evaluation.campaigns import run_campaign
from memory.spectral import Retained

campaign = importlib.import_module("evaluation.campaigns.spectral")


def test_the_published_example_is_reproduced_to_its_digits() -> None:
    rows = {row["quantity"]: row for row in run_campaign("spectral")["rows"]}
    for name in ("directions kept", "energy", "energy first", "score error", "row change", "renormalised"):
        assert rows[name]["status"] == "reproduced"
        assert rows[name]["published"] is not None
    assert rows["spectra that do not keep the shortest sufficient prefix"]["ours"] == 0


def test_a_rule_that_keeps_one_direction_only_is_noticed(monkeypatch) -> None:
    def one(sigma, rho):
        return Retained(np.array([int(np.argmax(np.abs(sigma)))]), 1.0)

    monkeypatch.setattr(campaign, "retained_directions", one)
    found = {row.quantity: row.status for row in (campaign.example() + campaign.properties(200, 0)).rows}
    assert found["directions kept"] == "not reproduced"
    assert found["spectra that do not keep the shortest sufficient prefix"] == "not reproduced"

"""`icu-memory predict` refuses in one line what it cannot do, and knows the thresholds of the events."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evaluation.prediction import models
from evaluation.retention import EVENT_CHANNELS
from flows.cli import main
from flows.steps import predict as step


def test_the_thresholds_are_those_of_every_event_channel() -> None:
    limits = step.event_limits()
    assert set(limits) == set(EVENT_CHANNELS)
    assert limits["spo2"] == (90.0, None)
    assert all(low is not None and (high is None or low < high) for low, high in limits.values())


def test_no_seed_at_all_is_refused_before_anything_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "prediction.json"
    assert main(["predict", "simulated", "--seeds", "0", "--out", str(out), "--quiet"]) == 1
    assert "at least 1 is needed" in capsys.readouterr().err
    assert not out.exists()


def test_the_table_holds_one_row_a_model_and_no_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    untrained = ("prevalence", "current margin", "logistic regression")
    monkeypatch.setattr(step, "ROWS", {name: models.ROWS[name] for name in untrained})
    monkeypatch.setenv("ICU_MEMORY_SIMULATED_PATIENTS", "80")
    monkeypatch.setenv("ICU_MEMORY_BOOTSTRAP_DRAWS", "20")
    out = tmp_path / "prediction.json"
    assert main(["predict", "simulated", "--seeds", "1", "--out", str(out), "--quiet"]) == 0
    document = json.loads(out.read_text())
    assert [row["model"] for row in document["rows"]] == list(untrained)
    assert document["rows"][0]["auroc"] == 0.5
    assert document["source"]["simulated"] is True
    assert not any("stay_id" in row or "subject_id" in row for row in document["rows"])
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".predict-")] == []

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

from cohort_sql.source import find_source
from evaluation.retention import CHANNELS, EVENT_CHANNELS, StayTokens
from flows import bench, evidence
from flows.cli import main
from flows.errors import FlowError
from flows.run.states import read_states, write_states
from flows.settings import Settings
from flows.steps.memories import capacity, stream_svdd
from flows.steps.report import published_rows
from flows.steps.stream import streaming_rows, tally
from memory.svdd import SVDDMemory


def a_stay(hours: int = 90, patient: int = 1, stay: int = 7) -> StayTokens:
    keys = np.round(np.cumsum(np.random.default_rng(hours).normal(size=(hours, 6)), axis=0) / 4, 1)
    nothing = np.zeros((hours, len(EVENT_CHANNELS)), dtype=np.bool_)
    return StayTokens(
        stay,
        patient,
        np.arange(2, hours + 2),
        keys,
        nothing,
        np.ones((hours, len(CHANNELS)), dtype=np.bool_),
        keys * 10,
    )


def test_doctor_is_fast_and_says_what_is_ready(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    began = time.monotonic()
    assert main(["doctor", str(source), "--json"]) == 0
    assert time.monotonic() - began < 10
    findings = json.loads(capsys.readouterr().out)
    assert {"python", "disk", "device", "prefect server", "state directory", "compiled solver", "source"} <= {
        finding["name"] for finding in findings
    }
    assert all(finding["state"] in ("ready", "note") for finding in findings)


def test_doctor_names_what_a_source_lacks(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (source / "icu" / "icustays.csv.gz").unlink()
    assert main(["doctor", str(source)]) == 1
    assert re.search(r"^missing +source .*no icu/icustays", capsys.readouterr().out, re.MULTILINE)


def test_a_state_directory_open_to_others_is_missing_its_protection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "state"
    place.mkdir(mode=0o755)
    monkeypatch.setenv("ICU_MEMORY_STATE", str(place))
    assert main(["doctor"]) == 1
    assert "chmod 700" in capsys.readouterr().out
    place.chmod(0o700)
    assert main(["doctor"]) == 0


def test_simulate_prints_where_it_wrote_and_refuses_a_directory_in_use(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["simulate", str(tmp_path / "new"), "--patients", "3", "--seed", "1", "--quiet"]
    assert main(command) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "new")
    assert find_source(tmp_path / "new").simulated
    assert main(command) == 1
    assert capsys.readouterr().err.startswith("error: ")


def test_the_audit_writes_every_regime_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "audit.json"
    assert main(["audit", "--regimes", "gaussian,exact_duplicates", "--trials", "2", "--out", str(out), "--quiet"]) == 0
    rows = json.loads(out.read_text())["rows"]
    assert {row["regime"] for row in rows} == {"gaussian", "exact_duplicates"}
    assert all(row["attempted"] == row["completed"] == 2 for row in rows)
    assert main(["audit", "--regimes", "no-such", "--out", str(out)]) == 1
    assert "unknown regime" in capsys.readouterr().err


def test_the_report_of_an_unfinished_study_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run").mkdir()
    assert main(["report", str(tmp_path / "run")]) == 1
    assert "icu-memory study" in capsys.readouterr().err


def test_every_published_row_names_its_source_and_cohort() -> None:
    rows = published_rows()
    assert len(rows) == 9
    assert all(row["source"] and row["cohort"] and 0 <= row["value"] <= 1 for row in rows)


def test_states_survive_the_disk_bit_for_bit_and_the_same_states_give_the_same_bytes(tmp_path: Path) -> None:
    stay, settings = a_stay(), Settings()
    state = stream_svdd(stay, stay.keys * 10, settings, None).state
    for name in ("a", "b"):
        write_states(tmp_path / name, {"7": state, "8": state})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    loaded = SVDDMemory.from_state(read_states(tmp_path / "a")["7"])
    assert loaded.digest() == SVDDMemory.from_state(state).digest()
    assert np.array_equal(loaded.score(stay.keys), SVDDMemory.from_state(state).score(stay.keys))


def test_a_states_file_cut_short_is_refused_by_name(tmp_path: Path) -> None:
    stay = a_stay()
    state = stream_svdd(stay, stay.keys, Settings(), None).state
    path = tmp_path / "bucket.safetensors"
    write_states(path, {"7": state})
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(FlowError, match=r"bucket\.safetensors"):
        read_states(path)


def test_a_streamed_memory_ends_as_one_that_was_given_the_whole_stay() -> None:
    stay, settings = a_stay(), Settings()
    end = stream_svdd(stay, stay.keys, settings, None)
    whole = SVDDMemory(capacity(settings), settings.sigma).fit(stay.keys)
    probes = np.random.default_rng(1).normal(size=(50, 6)) * 3
    assert np.abs(SVDDMemory.from_state(end.state).score(probes) - whole.score(probes)).max() < 1e-9
    assert end.counts["active"] < len(stay.hours)
    assert end.worst["bound"] < 1e-9


def test_a_stay_too_short_for_the_cap_is_kept_whole_and_counted_as_collecting() -> None:
    stay = a_stay(hours=10)
    end = stream_svdd(stay, stay.keys, Settings(), None)
    assert len(end.state["ids"]) == 10
    assert (end.counts["collecting"], end.counts["active"], end.worst) == (1, 10, {})


def test_tallies_add_up_and_keep_the_worst_bound() -> None:
    stays = [a_stay(90, patient=1), a_stay(60, patient=1, stay=8), a_stay(80, patient=2, stay=9)]
    settings = Settings.model_validate({"memories": "svdd"})
    ends = [stream_svdd(stay, stay.keys, settings, None) for stay in stays]
    rows = [tally("svdd", stay, end) for stay, end in zip(stays, ends, strict=True)]
    (row,) = streaming_rows(settings.memories, settings, pl.concat(rows))
    assert (row["stays"], row["patients"], row["tokens"]) == (3, 2, 230)
    assert row["bound"] == max(end.worst["bound"] for end in ends)
    assert row["active"] == sum(end.counts["active"] for end in ends)
    paths = sum(value for name, value in row.items() if name.startswith("path_"))
    assert paths == row["tokens"]


def test_the_bench_tells_ratios_and_the_peak_memory_of_a_build(source: Path, tmp_path: Path) -> None:
    settings = Settings.model_validate({"preset": "paper"})
    first, second = bench.cohort(find_source(source), settings, tmp_path)
    assert first["file_lines"] > 10_000
    assert first["decompress_ratio"] == pytest.approx(first["seconds"] / first["decompress_seconds"])
    assert 50e6 < first["peak_bytes"] < 4e9
    assert second["first_build_ratio"] > 0
    row = bench.streaming(tmp_path / "cohort", settings)
    assert row["tokens"] == 1536
    assert row["certificate_cost_ratio"] > 1


def test_evidence_without_its_recordings_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert evidence.main(["--out", str(tmp_path / "e"), "--data", str(tmp_path)]) == 1
    assert "mimic_demo_iv" in capsys.readouterr().err
    assert not (tmp_path / "e").exists()


@pytest.mark.skipif(torch.cuda.is_available(), reason="a device is present")
def test_a_device_that_is_not_there_is_refused(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["study", str(source), "--out", str(tmp_path / "run"), "--device", "cuda"]) == 1
    assert "--device cuda" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()

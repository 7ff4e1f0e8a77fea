from __future__ import annotations

from pathlib import Path

import pytest

from flows.errors import UsageProblem
from flows.settings import Settings, load_settings, operational_names


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_flags_beat_the_environment_and_the_environment_beats_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(tmp_path / "s.toml", "seed = 1\nbuckets = 2\nnu = 0.2\n")
    monkeypatch.setenv("ICU_MEMORY_SEED", "11")
    monkeypatch.setenv("ICU_MEMORY_BUCKETS", "12")
    chosen = load_settings(file, {"seed": 21})
    assert (chosen.seed, chosen.buckets, chosen.nu) == (21, 12, 0.2)


def test_the_quick_study_gives_way_to_everything_said(tmp_path: Path) -> None:
    quick = load_settings(quick=True)
    assert (quick.stays, quick.bootstrap_draws) == (40, 1000)
    assert load_settings(write(tmp_path / "s.toml", "stays = 7\n"), quick=True).stays == 7


def test_the_published_preset_draws_the_published_number_of_stays_unless_told() -> None:
    assert load_settings(flags={"preset": "paper"}).stays == 1500
    assert load_settings(flags={"preset": "paper", "stays": 5}).stays == 5
    assert load_settings().stays is None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("sede = 0\n", "unknown key 'sede'"),
        ("seed = 'rhubarb'\n", "seed:"),
        ("nu = 2.0\n", "nu:"),
        ("seed = = 1\n", "not valid TOML"),
    ],
)
def test_a_bad_settings_file_is_one_line_that_repeats_no_value(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(UsageProblem) as refusal:
        load_settings(write(tmp_path / "s.toml", text))
    line = str(refusal.value)
    assert told in line
    assert "\n" not in line
    assert "rhubarb" not in line


def test_an_unreadable_settings_file_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(UsageProblem, match=r"absent\.toml"):
        load_settings(tmp_path / "absent.toml")


def test_settings_survive_the_manifest() -> None:
    chosen = load_settings(flags={"preset": "paper", "held_out": "spo2", "state": "/s"})
    assert Settings.model_validate(chosen.model_dump(mode="json")) == chosen


def test_a_manifest_is_read_without_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ICU_MEMORY_SEED", "5")
    assert Settings.model_validate({}).seed == 0


def test_how_a_study_runs_is_no_part_of_what_it_is() -> None:
    here, there = load_settings(flags={"workers": 1}), load_settings(flags={"workers": 2, "show_records": True})
    assert here.identity() == there.identity()
    assert here.identity() != load_settings(flags={"seed": 1}).identity()
    assert "nu" not in operational_names()

"""A small invented source and a small finished run with its site, each made once, and copies of them to spoil."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from cohort_sql.simulate import simulate
from flows.evidence_forget import SMALL, small_site
from flows.run.layout import RunLayout
from flows.run.registry import opened_site
from flows.settings import Settings


@pytest.fixture(scope="session")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("sources") / "pristine"
    simulate(made, patients=8, seed=1)
    return made


@pytest.fixture
def source(pristine: Path, tmp_path: Path) -> Path:
    copy = tmp_path / 'a source\'s "copy"'
    shutil.copytree(pristine, copy)
    return copy


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of ten patients in two wards, its source and its site with a key: to copy, never to change."""
    place = tmp_path_factory.mktemp("finished")
    small_site(place, 10)
    return place


@pytest.fixture
def deletable(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[RunLayout, Settings]:
    """The run and its site in a place of their own, registered there and nowhere else."""
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "prefect"))
    return _copied(finished, tmp_path)


@pytest.fixture(scope="module")
def shared_deletable(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[RunLayout, Settings]:
    """As `deletable`, one for all tests of a file."""
    return _copied(finished, tmp_path_factory.mktemp("shared"))


def _copied(finished: Path, place: Path) -> tuple[RunLayout, Settings]:
    """Copy the finished run and its site, and register the copy in place of the run."""
    shutil.copytree(finished / "run", place / "run")
    shutil.copytree(finished / "state", place / "state")
    layout, state = RunLayout(place / "run"), place / "state"
    manifest = layout.manifest.read_text(encoding="utf-8")
    layout.manifest.write_text(manifest.replace(str(finished / "state"), str(state)), encoding="utf-8")
    with opened_site(state) as site:
        (former,) = site.runs()
        kinds = site.inventory(former.run_id)
        site.drop_run(former.run_id)
        site.set_inventory(site.register_run(layout, former.source), kinds)
    return layout, Settings.model_validate({**SMALL, "state": state})


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MIMICIV_PATH", "MIMIC_DATA_DIR", "ICU_MEMORY_STATE", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)

"""A small invented source, made once, and copies of it to spoil."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from cohort_sql.simulate import simulate


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


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MIMICIV_PATH", "MIMIC_DATA_DIR", "ICU_MEMORY_STATE", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)

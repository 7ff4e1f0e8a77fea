"""Sources that several tests of the room read and none changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from cohort_sql.simulate import simulate


@pytest.fixture(scope="session")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A simulated source large enough for rates and shares."""
    root = tmp_path_factory.mktemp("simulated") / "source"
    simulate(root, patients=500, seed=3)
    return root

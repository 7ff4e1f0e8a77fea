"""Where a run may stand, and who may look into it."""

from __future__ import annotations

import pytest

from cohort_sql.source import find_source
from flows.errors import FlowError
from flows.run.layout import RunLayout
from flows.settings import Settings
from flows.steps.preflight import opened_run


def test_a_run_inside_its_source_is_refused_and_leaves_it_as_it_is(source):
    before = sorted(source.rglob("*"))
    with (
        pytest.raises(FlowError, match="inside the source directory"),
        opened_run(RunLayout(source / "run"), find_source(source), Settings()),
    ):
        pass
    assert sorted(source.rglob("*")) == before


def test_a_run_is_for_its_owner_alone(source, tmp_path):
    layout = RunLayout(tmp_path / "run")
    with opened_run(layout, find_source(source), Settings()):
        assert layout.root.stat().st_mode & 0o077 == 0

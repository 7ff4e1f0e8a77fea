"""Deletions killed at random operations: no half state, no lost receipt, no receipt for something undone."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.evidence_forget import delete_each, kill_at_random

pytestmark = pytest.mark.integration


def test_after_a_kill_anywhere_the_next_command_leaves_the_old_run_or_a_completed_deletion(tmp_path: Path) -> None:
    found = kill_at_random(tmp_path, 10, patients=6)
    assert (found.kills, found.before_the_intent + found.completed) == (10, 10)
    assert (found.half_states, found.lost_receipts, found.receipts_for_something_undone) == (0, 0, 0)


def test_patient_after_patient_is_deleted_with_all_checks_passing(tmp_path: Path) -> None:
    found = delete_each(tmp_path, 10, 12)
    assert (found["attempted"], found["passed"]) == (10, 10)

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flows.run.layout import RunLayout
from flows.settings import Settings
from flows.steps.report import STATEMENTS, _other_memories
from reports.html.model import HIDDEN, MemoryRow
from reports.html.suppression import _memory

SIZES = {"stays": 131, "patients": 97, "tokens": 5000}


def layout(tmp_path: Path, *rows: dict[str, Any]) -> RunLayout:
    made = RunLayout(tmp_path)
    made.results.mkdir()
    (made.results / "streaming.json").write_text(json.dumps({"schema_version": 1, "rows": rows}))
    return made


def test_every_memory_states_what_its_own_write_rule_allows(tmp_path: Path) -> None:
    run = layout(tmp_path, *({"memory": name, **SIZES} for name in ("svdd", "vla", "nc01", "wards")))
    ridge, unit = (Settings.model_validate({"vla_gain": gain}) for gain in ("ridge", "unit"))
    stated = {row["name"]: row["deletion"] for row in _other_memories(run, ridge)}
    assert stated == {name: STATEMENTS[name] for name in ("vla", "nc01", "wards")}
    assert "in any order" in stated["vla"]
    changed = {row["name"]: row["deletion"] for row in _other_memories(run, unit)}
    assert "replay" in changed["vla"]
    assert "order" not in changed["vla"]


def test_declared_numbers_are_no_counts_of_hours(tmp_path: Path) -> None:
    row = {"memory": "wards", "wards": 4, "cap": 0.002, "declared_hours": 2000, "hot": 600, "bound": 1e-13, **SIZES}
    (told,) = _other_memories(layout(tmp_path, row), Settings())
    assert told["counts"] == {"hot": 600}
    assert told["worst"] == {"bound": 1e-13}


def memory(**counts: int) -> MemoryRow:
    return MemoryRow("wards", "a statement", 131, 97, 5000, counts)


@pytest.mark.parametrize(("hot", "shown"), [(5000, True), (4995, False), (4990, False), (4989, True), (3, False)])
def test_hot_hours_are_hidden_where_few_or_where_few_are_cold(hot: int, shown: bool) -> None:
    assert (_memory(memory(hot=hot)).counts["hot"] is not HIDDEN) == shown


def test_a_small_number_of_refused_offers_takes_another_one_with_it() -> None:
    told = _memory(memory(offer_admitted=300, offer_gram=4, offer_full=40)).counts
    assert told["offer_gram"] is HIDDEN
    assert sum(count is HIDDEN for count in told.values()) == 2

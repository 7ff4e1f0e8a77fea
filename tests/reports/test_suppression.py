"""A reader who knows the rules and the page cannot work out a hidden small count.

The central tests enumerate every small table, group the tables by what the page would show of them, and demand that
within a group each small number takes at least two values: then no subtraction, and no knowledge of the rules, gives
it away.
"""

from __future__ import annotations

import itertools
import random
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from typing import Any

import pytest
import sample

from reports.html import render_report
from reports.html.model import HIDDEN, Study, read_study
from reports.html.suppression import hide_in_chain, hide_in_table, hide_in_total, is_small, suppress


def unsafe(tables: Iterable[tuple[Any, dict[str, int]]]) -> list[Any]:
    """Return the views under which a small number is certain. A table is what is shown of it, and all its numbers."""
    seen: dict[Any, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
    for view, numbers in tables:
        for name, number in numbers.items():
            seen[view][name].add(number)
    return [
        (view, name)
        for view, numbers in seen.items()
        for name, values in numbers.items()
        if len(values) == 1 and is_small(next(iter(values)))
    ]


def test_small_means_one_to_ten() -> None:
    assert [n for n in range(-1, 14) if is_small(n)] == list(range(1, 11))


@pytest.mark.parametrize("reasons", [1, 2, 3])
def test_no_hidden_part_of_a_total_can_be_worked_out(reasons: int) -> None:
    def tables() -> Iterable[tuple[Any, dict[str, int]]]:
        for bars in itertools.combinations(range(41 + reasons), reasons + 1):  # every way to cut up to 40 into parts
            counts = [after - before - 1 for before, after in itertools.pairwise([-1, *bars])]
            parts, total = dict(zip(["used", "a", "b", "c"], counts, strict=False)), sum(counts)
            hidden = hide_in_total(total, parts, last="used")
            shown = tuple((name, None if name in hidden else n) for name, n in parts.items())
            yield (None if is_small(total) else total, shown), {**parts, "total": total}

    assert unsafe(tables()) == []


def test_two_reasons_of_one_each_take_a_third_with_them() -> None:
    parts = {"used": 500, "a": 1, "b": 1, "c": 40, "d": 30}
    assert hide_in_total(572, parts, last="used") == {"a", "b", "c"}


def test_the_used_count_goes_last() -> None:
    assert hide_in_total(60, {"used": 20, "a": 5, "b": 35}, last="used") == {"a", "b"}
    assert hide_in_total(25, {"used": 20, "a": 5}, last="used") == {"a", "used"}


def test_nothing_is_hidden_where_nothing_is_small() -> None:
    assert hide_in_total(100, {"used": 60, "a": 40, "b": 0}) == frozenset()
    assert hide_in_table(100, 60, 40, 20) == frozenset()
    assert hide_in_chain([(100, []), (60, [0]), (60, [0, 1])]) == (False, False, False)


def test_no_cell_of_two_overlapping_properties_can_be_worked_out() -> None:
    def tables() -> Iterable[tuple[Any, dict[str, int]]]:
        for total, first, second in itertools.product(range(43), repeat=3):
            if max(first, second) > total:
                continue
            for both in range(max(0, first + second - total), min(first, second) + 1):
                hidden = hide_in_table(total, first, second, both)
                numbers = {"first": first, "second": second, "both": both}
                view = tuple(None if name in hidden else number for name, number in numbers.items())
                rests = {
                    "first only": first - both,
                    "second only": second - both,
                    "neither": total - first - second + both,
                }
                rests |= {"not first": total - first, "not second": total - second}
                yield (None if is_small(total) else total, *view), numbers | rests

    assert unsafe(tables()) == []


def test_no_count_and_no_complement_of_nested_counts_can_be_worked_out() -> None:
    def tables() -> Iterable[tuple[Any, dict[str, int]]]:
        for cohort in range(45):
            for composite in range(cohort + 1):
                for channel in range(composite + 1):
                    sizes = (cohort, composite, channel)
                    hidden = hide_in_chain([(cohort, []), (composite, [0]), (channel, [0, 1])])
                    view = tuple(None if gone else size for size, gone in zip(sizes, hidden, strict=True))
                    rests = {
                        "no event": cohort - composite,
                        "other": composite - channel,
                        "all other": cohort - channel,
                    }
                    yield view, dict(zip(("cohort", "composite", "channel"), sizes, strict=True)) | rests

    assert unsafe(tables()) == []


def test_counts_elsewhere_do_not_give_away_what_the_cohort_flow_hides() -> None:
    """The used stays also appear in the retention rows and in the streamed memories."""
    base = sample.study() | {"coverage": [], "contrasts": [], "published": [], "audit": []}
    row = next(row for row in base["retention"] if row["channel"] == "composite")

    def tables() -> Iterable[tuple[Any, dict[str, int]]]:
        for source, left, fewer in itertools.product(range(1, 36), range(16), range(14)):
            used = source - left
            if used < 0:
                continue
            counts = {"source": source, "used": used, "left_out": {"a": left}}
            with_event = max(used - fewer, 0)
            study = base | {
                "attrition": base["attrition"] | {"stays": counts},
                "retention": [row | {"stays": with_event}],
                "streaming": base["streaming"] | {"stays": used},
            }
            record = suppress(read_study(study))
            flow = record.attrition["stays"]
            view = (flow.source, flow.used, flow.left_out["a"], record.retention[0].stays, record.streaming.stays)
            yield view, {"used": used, "left out": left, "without event": used - with_event, "with event": with_event}

    assert unsafe(tables()) == []


def random_study(seed: int) -> dict[str, Any]:
    """A study whose counts are drawn at random around the threshold, nested as real ones are."""
    draw = random.Random(seed)
    study = sample.study()
    stays, patients = draw.randint(0, 60), 0
    patients = draw.randint(0, stays)
    left = {"a": draw.randint(0, 15), "b": draw.randint(0, 15), "c": draw.randint(0, 40)}
    study["attrition"]["stays"] = {"source": stays + sum(left.values()), "used": stays, "left_out": left}
    study["attrition"]["patients"] = {"source": patients + left["a"], "used": patients, "left_out": {"a": left["a"]}}
    study["streaming"] |= {
        "stays": stays,
        "patients": patients,
        "tokens": 80,
        "retained": draw.randint(60, 80),
        "paths": {"walk": 75, "reserve": 5},
    }
    groups: dict[Any, tuple[int, int]] = {}
    for row in sorted(study["retention"], key=lambda r: (r["channel"] != "composite", r["channel"], r["events"])):
        key = (row["protocol"], row["channel"], row["events"])
        above = groups.get(
            (row["protocol"], row["channel"], "all")
            if row["events"] == "measured"
            else (row["protocol"], "composite", "all"),
            (stays, patients),
        )
        groups.setdefault(key, (draw.randint(0, above[0]), draw.randint(0, above[1])))
        row["stays"], row["patients"] = groups[key]
    for row in study["contrasts"]:
        row["groups"] = groups[row["protocol"], row["channel"], "all"][row["unit"] == "patient"]
    for row in study["coverage"]:
        row |= {
            "hours": 40,
            "measured_hours": draw.randint(0, 40),
            "event_hours": draw.randint(0, 40),
            "stays_without": draw.randint(0, 60),
        }
        row["measured_share"] = row["measured_hours"] / 40
        row["measured_event_hours"] = draw.randint(
            max(0, row["measured_hours"] + row["event_hours"] - 40), min(row["measured_hours"], row["event_hours"])
        )
    return study


def shown_counts(record: Any) -> Iterable[int]:
    """Every integer that is still in the record, apart from settings, trials and published figures."""
    if is_dataclass(record):
        left_out = (
            {"settings", "audit", "published", "simulated", "show_records"} if isinstance(record, Study) else set()
        )
        for field in fields(record):
            if field.name not in left_out:
                yield from shown_counts(getattr(record, field.name))
    elif isinstance(record, dict):
        for value in record.values():
            yield from shown_counts(value)
    elif isinstance(record, list | tuple):
        for value in record:
            yield from shown_counts(value)
    elif isinstance(record, int) and not isinstance(record, bool):
        yield record


@pytest.mark.parametrize("seed", range(60))
def test_no_small_count_survives_and_hidden_ones_take_their_percentages_along(seed: int) -> None:
    raw = read_study(random_study(seed))
    record = suppress(raw)
    assert [n for n in shown_counts(record) if is_small(n)] == []
    for row in record.coverage:
        if row.measured_hours is HIDDEN:
            assert row.measured_share is HIDDEN
    for row, source in zip(record.retention, raw.retention, strict=True):
        if is_small(source.stays) or is_small(source.patients):
            assert {row.retention, row.retrieval, row.low, row.high, row.budget, row.measured_share} == {HIDDEN}
        incomplete = [
            c for c in record.coverage if c.channel == row.channel and HIDDEN in (c.event_hours, c.measured_event_hours)
        ]
        if incomplete:
            assert row.measured_share is HIDDEN
    used = {"stays": record.attrition["stays"].used, "patients": record.attrition["patients"].used}
    for row in record.retention:
        for name, total in used.items():
            if total is not HIDDEN and getattr(row, name) is not HIDDEN:
                assert not is_small(total - getattr(row, name))


def test_a_hidden_estimate_leaves_no_mark_and_a_hidden_share_no_boundary_in_the_figures() -> None:
    study = sample.study()
    study["coverage"] = [
        row | {"measured_hours": 12_268, "measured_share": 12_268 / 12_273, "event_hours": 0, "measured_event_hours": 0}
        for row in study["coverage"][:1]
    ]
    study["retention"] = [row for row in study["retention"] if row["channel"] == "temp"]
    page = render_report(study)
    coverage = re.search(r"<svg[^>]*coverage-wide.*?</svg>", page, re.DOTALL).group(0)
    assert re.findall(r'class="bar( [a-z ]+)?"', coverage)[2:] == [" void", " void"]  # after the two of the key
    forest = re.search(r"<svg[^>]*forest-fixed-context-wide.*?</svg>", page, re.DOTALL).group(0)
    assert "reach" not in forest
    assert forest.count("hidden") >= 10


def test_show_records_shows_everything_and_says_so(page: str) -> None:
    shown = render_report(sample.study(show_records=True))
    assert "do not pass it on" in shown
    assert "do not pass it on" not in page
    assert 'class="number hidden"' not in re.sub(r'<ul class="looks">.*?</ul>', "", shown, flags=re.DOTALL)
    assert 'class="number hidden"' in re.sub(r'<ul class="looks">.*?</ul>', "", page, flags=re.DOTALL)
    assert ">0.403<" in shown
    assert ">0.403<" not in page

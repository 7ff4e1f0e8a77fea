"""Budget curves, net recall, synthetic tasks and the caveats of intervals on the page."""

from __future__ import annotations

import copy
import itertools
import re
from typing import Any
from xml.etree.ElementTree import fromstring

import html5lib
import pytest
import sample

from reports.html import honesty, recall, render_report
from reports.html.curves import PUBLISHED, curve, drawn, spread
from reports.html.model import HIDDEN, CurveRow, RecallRow, read_study
from reports.html.shared import BEST_SHOWN, shown_policies
from reports.html.suppression import suppress

POLICIES = ("svdd", "density", "recency", "random", "least-dense", "leverage", "ensemble", "news2", "uniform")


def curve_rows(channel: str = "spo2", stays: int = 40, patients: int = 39) -> list[dict[str, Any]]:
    """Rows as in RUN/results/curves.json; the later a policy's name the more it keeps."""
    return [
        {
            "protocol": "fixed-context",
            "channel": channel,
            "policy": policy,
            "target_share": share,
            "budget": share,
            "retention": share + 0.05 * n,
            "retrieval": share,
            "events": events,
            "low": share + 0.05 * n - 0.04,
            "high": share + 0.05 * n + 0.04,
            "stays": stays,
            "patients": patients,
            "event_hours": 296,
            "measured_event_hours": 266,
            "locations": 20,
            "reason": None,
        }
        for n, policy in enumerate(POLICIES)
        for share in (0.05, 0.2, 0.33, 0.5)
        for events in ("all", "measured")
    ]


def recall_rows(stays: int = 40, patients: int = 39, measured: int = 266) -> list[dict[str, Any]]:
    """Rows as in RUN/results/recall.json."""
    values = {"vla-ridge 0.001": (0.42, 0.20, None), "nc01": (0.26, 0.21, None), "novelty": (0.70, 0.43, 0.6)}
    return [
        {
            "channel": "spo2",
            "memory": memory,
            "size": "d_k 64" if kept is None else "315 hours",
            "budget": budget,
            "budget_bytes": size,
            "delay": delay,
            "tolerance": tolerance,
            "events": events,
            "recalled": recalled,
            "recalled_low": recalled - 0.1,
            "recalled_high": recalled + 0.1,
            "ghost": ghost,
            "ghost_low": ghost - 0.1,
            "ghost_high": ghost + 0.1,
            "net": recalled - ghost,
            "low": recalled - ghost - 0.08,
            "high": recalled - ghost + 0.08,
            "kept": kept,
            "state_bytes": 17_664.0,
            "matched_hours": 315.4,
            "stays": stays,
            "patients": patients,
            "hours": 12_273,
            "event_hours": 296,
            "measured_event_hours": measured,
            "asked": 180,
            "reason": None,
        }
        for budget, size in (("same state", 17_664), ("a third of the hours", None))
        for memory, (recalled, ghost, kept) in values.items()
        for delay in (6, 24, 96)
        for tolerance in (0.25, 0.5, 1.0)
        for events in ("all", "measured")
    ]


def task_rows() -> list[dict[str, Any]]:
    """Rows as in RUN/results/tasks.json."""
    common = {"task": "distinct keys", "trials": 300, "tolerance": 0.03, "source": "a paper", "conditions": "ten pairs"}
    return [
        common
        | {
            "policy": "gate",
            "value": 0.991,
            "low": 0.987,
            "high": 0.995,
            "published": 0.955,
            "status": "not reproduced",
        },
        common | {"policy": "all", "value": 0.999, "low": 0.998, "high": 1.0, "published": 1.0, "status": "reproduced"},
    ]


def full() -> dict[str, Any]:
    return sample.study() | {"curves": curve_rows(), "recall": recall_rows(), "tasks": task_rows()}


@pytest.fixture(scope="module")
def page() -> str:
    return render_report(full())


def test_page_with_all_measures_is_valid_and_repeats_byte_for_byte(page: str) -> None:
    document = html5lib.HTMLParser(strict=True, namespaceHTMLElements=False).parse(page)
    ids = [element.get("id") for element in document.iter() if isinstance(element.tag, str) and element.get("id")]
    assert len(ids) == len(set(ids))
    assert {"curves", "recall", "tasks"} <= set(ids)
    assert {f"#{name}" for name in ("curves", "recall", "tasks")} <= set(re.findall(r'href="([^"]*)"', page))
    assert page == render_report(full())


def test_page_of_a_study_without_these_measures_has_no_such_section() -> None:
    page = render_report(sample.study())
    assert not re.search(r'id="(curves|recall|tasks)"|href="#(curves|recall|tasks)"', page)


def test_input_is_not_changed() -> None:
    given = full()
    before = copy.deepcopy(given)
    render_report(given)
    assert given == before


def test_panels_draw_published_policies_and_the_few_best_of_the_others() -> None:
    rows = [CurveRow(**{k: v for k, v in row.items() if k != "locations"}) for row in curve_rows()]
    names = drawn([row for row in rows if row.events == "all"])
    assert set(PUBLISHED) <= set(names)
    assert set(names) - set(PUBLISHED) == {"uniform", "news2", "ensemble"}
    assert len(names) == len(PUBLISHED) + BEST_SHOWN


def test_every_policy_stands_in_the_table_below_the_panels(page: str) -> None:
    section = page[page.index('id="curves"') : page.index('id="recall"')]
    table = section[section.index("<table") :]
    for policy in POLICIES:
        assert f'<th scope="row">{policy}</th>' in table


def test_a_panel_names_its_lines_and_reads_them_out_with_every_value() -> None:
    rows = [
        CurveRow(**{k: v for k, v in row.items() if k != "locations"}) for row in curve_rows() if row["events"] == "all"
    ]
    root = fromstring(curve("fixed-context", "spo2", rows, simulated=False))
    words = ["".join(part.itertext()) for part in root.iter("text")]
    assert set(drawn(rows)) <= set(words)
    assert (
        "svdd: 5.0\u00a0%: 0.050, 20.0\u00a0%: 0.200, 33.0\u00a0%: 0.330, 50.0\u00a0%: 0.500." in root.find("desc").text
    )
    assert sum(part.get("class").startswith("band") for part in root.iter("polygon")) == len(drawn(rows))


def test_labels_keep_apart_and_inside_wherever_the_lines_end() -> None:
    ends = {f"p{n}": 60.0 for n in range(7)} | {"low": 251.0, "lowest": 252.0}
    heights = sorted(spread(ends).values())
    assert all(after - before >= 13.9 for before, after in itertools.pairwise(heights))
    assert heights[-1] <= 252
    assert heights[0] >= 0


def test_net_recall_prints_recalled_ghost_and_net_of_the_main_delay_and_names_the_best(page: str) -> None:
    section = page[page.index('<section id="recall"') :]
    row = section[section.index("VLA, ridge gain 0.001</th>") :].split("</tr>")[0]
    numbers = re.findall(r'class="number \w+">([^<]*)<', row)
    assert numbers == [
        *("17,664", "315", "–", "0.420", "0.320 to 0.520"),
        *("0.200", "0.100 to 0.300", "+0.220", "+0.140 to +0.300"),
    ]
    assert "cache, least dense hours nets most, 0.270" in section
    assert "the best matrix memory is VLA, ridge gain 0.001 with 0.220" in section


def test_tasks_stand_beside_published_values_with_their_status(page: str) -> None:
    section = page[page.index('<section id="tasks"') :].split("</section>", maxsplit=1)[0]
    assert section.count("not reproduced") == 1
    assert section.count(">reproduced<") == 1
    assert 'class="number published">0.955<' in section


def test_measures_on_few_patients_are_hidden_with_their_counts() -> None:
    study = full() | {"curves": curve_rows("temp", 7, 7), "recall": recall_rows(7, 7)}
    shown = suppress(read_study(study))
    for row in shown.curves:
        assert (row.stays, row.patients, row.retention, row.low) == (HIDDEN,) * 4
    for row in shown.recall:
        assert (row.stays, row.patients, row.recalled, row.ghost, row.net, row.kept, row.state_bytes) == (HIDDEN,) * 7
    page = render_report(study)
    section = page[page.index('<section id="recall"') :].split("</section>")[0]
    assert "0.420" not in section


def test_a_count_that_leaves_few_of_a_shown_one_is_hidden() -> None:
    study = full() | {"recall": recall_rows(36, 35, measured=290)}
    for row in suppress(read_study(study)).recall:
        assert row.stays is HIDDEN  # 40 stays have such an event, 4 of them are not asked
        assert row.patients is HIDDEN
        assert row.measured_event_hours is HIDDEN  # 296 - 290
        assert isinstance(row, RecallRow)
        assert row.net is not HIDDEN


def test_show_records_hides_nothing_of_them() -> None:
    study = full() | {"recall": recall_rows(7, 7), "show_records": True}
    assert {row.stays for row in suppress(read_study(study)).recall} == {7}


def test_an_identifier_in_a_row_of_a_measure_reaches_no_part_of_the_page() -> None:
    canary = 918_273_645_546
    study = full()
    for name in ("curves", "recall", "tasks"):
        study[name] = [row | {"stay_id": canary, "reason": f"stay {canary}"} for row in study[name]]
    for row in study["recall"]:
        row |= {"memory": f"m{canary}", "net": None, "low": None}
    for row in study["curves"]:
        row |= {"policy": f"p{canary}", "channel": f"c{canary}"}
    assert str(canary) not in render_report(study)


def test_intervals_on_few_patients_are_named_and_hidden_counts_are_not_judged() -> None:
    few = sample.study()
    for row in few["retention"]:
        row.update({"patients": 25, "stays": 26} if row["channel"] == "hr" else {})
    text = honesty.few_patients(suppress(read_study(few)))
    assert text.startswith("Intervals of Heart rate rest on fewer than 30 patients")
    assert "Temperature" not in text  # seven patients: no interval is shown
    many = sample.study()
    for row in many["retention"]:
        row |= {"patients": 60, "stays": 62}
    assert honesty.few_patients(read_study(many)) == ""


def test_shortfall_of_intervals_by_stay_is_told_from_the_contrasts() -> None:
    text = honesty.stay_shortfall(read_study(sample.study()))
    assert text.startswith(
        "Intervals by stay are on average 94 % as wide as those by patient, and narrower in 36 of 36"
    )
    assert honesty.stay_shortfall(read_study(sample.study() | {"contrasts": []})) == ""


def test_a_memory_without_a_defined_net_is_not_the_best() -> None:
    rows = [row | {"net": None, "low": None, "high": None, "reason": "one patient"} for row in recall_rows()]
    study = read_study(full() | {"recall": rows})
    assert recall.recall_findings(study) == []
    assert "One patient." in render_report(full() | {"recall": rows})


def test_many_policies_do_not_swamp_the_opening_and_the_figures_but_stand_in_the_table() -> None:
    study = sample.study()
    plain = [row for row in study["retention"] if row["policy"] == "recency"]
    for n in range(9):
        study["retention"] += [row | {"policy": f"extra-{n}", "retention": 0.05 * n} for row in plain]
    record = read_study(study)
    extra = {name for name in shown_policies(record, "fixed-context") if name.startswith("extra")}
    assert extra == {"extra-6", "extra-7", "extra-8"}
    page = render_report(study)
    opening, retention = (
        page[page.index(f'<section id="{name}"') :].split("</section>")[0] for name in ("headline", "retention")
    )
    assert "extra-8" in opening
    assert "extra-1" not in opening
    drawing, table = retention.split("</figure>")[0], retention.split("</figure>")[1]
    assert "extra-1" not in drawing
    assert "extra-1" in table


def test_a_selector_compared_with_the_support_set_has_its_sentence_losses_included() -> None:
    study = sample.study()
    plain = [row for row in study["retention"] if row["policy"] == "recency"]
    study["retention"] += [row | {"policy": "ensemble"} for row in plain]
    ends = {"spo2": (0.07, 0.03, 0.11), "sbp": (-0.05, -0.08, -0.02)}
    for channel, (mean, low, high) in ends.items():
        row = next(r for r in study["contrasts"] if (r["channel"], r["unit"]) == (channel, "patient"))
        study["contrasts"].append(row | {"left": "ensemble", "right": "svdd", "mean": mean, "low": low, "high": high})
    page = render_report(study)
    assert "Against svdd: ensemble loses on systolic (−0.050); ensemble wins on SpO₂ (+0.070)." in page


def test_a_verdict_names_the_policy_on_the_left_of_the_difference() -> None:
    study = sample.study()
    row = next(r for r in study["contrasts"] if (r["channel"], r["unit"]) == ("spo2", "patient"))
    study["contrasts"] = [row | {"left": "ensemble", "right": "svdd", "mean": 0.07, "low": 0.03, "high": 0.11}]
    page = render_report(study)
    assert "▲ ensemble wins" in page
    assert "svdd wins" not in page[page.index('<section id="contrasts"') :].split("</section>")[0]


def test_delays_of_net_recall_with_few_patients_are_named_where_their_number_is_shown() -> None:
    rows = [row | ({"patients": 20, "stays": 20} if row["delay"] == 96 else {}) for row in recall_rows()]
    page = render_report(full() | {"recall": rows})
    assert "Intervals at 96 h rest on fewer than 30 patients" in page
    assert honesty.few_recalled(suppress(read_study(full() | {"recall": recall_rows(7, 7)}))) == ""

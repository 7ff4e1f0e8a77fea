"""What the report says: losses first, budgets on every row, protocols apart, three looks for three kinds of numbers."""

from __future__ import annotations

import html
import re
from xml.etree.ElementTree import Element

import html5lib
import pytest
import sample

from evaluation.protocol_fixed import FixedContext
from reports.html import render_report
from reports.html.numbers import Kind, as_published, count, fraction, interval, percent, plain, scientific
from reports.html.svg import Scale
from reports.html.words import OTHER_POLICIES, POLICIES


def section(page: str, name: str) -> str:
    return re.search(rf'<section id="{name}".*?</section>', page, re.DOTALL).group(0)


def words(markup: str) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", markup)).replace("\u00a0", " ").split())


def test_opening_names_patients_stays_hours_and_budget(page: str) -> None:
    text = words(section(page, "headline"))
    assert "ICU stays 68" in text
    assert "patients 65" in text
    assert "stay-hours 12,273" in text
    assert "every policy keeps 32.3 % of the hours" in text


def test_opening_says_where_the_support_set_loses_and_to_whom(page: str) -> None:
    text = words(section(page, "headline"))
    assert "svdd wins on 0 and loses on 2 of 5 kinds of event against least-dense" in text
    assert "Against least-dense: svdd loses on composite (−0.029) and SpO₂ (−0.084)" in text
    assert "unclear on heart rate (−0.009), systolic (+0.007) and resp. rate (−0.014); hidden on temperature." in text


@pytest.mark.parametrize(
    ("low", "high", "word"),
    [
        (0.001, 0.2, "wins"),
        (-0.2, -0.001, "loses"),
        (-0.1, 0.1, "unclear"),
        (0.0, 0.2, "unclear"),
        (-0.2, 0.0, "unclear"),
    ],
)
def test_verdict_needs_an_interval_wholly_on_one_side_of_zero(low: float, high: float, word: str) -> None:
    study = sample.study()
    row = {"protocol": "fixed-context", "channel": "spo2", "left": "svdd", "right": "density", "unit": "patient"}
    study["contrasts"] = [row | {"mean": (low + high) / 2, "low": low, "high": high, "groups": 39}]
    text = words(section(render_report(study), "contrasts"))
    assert [w for w in ("wins", "loses", "unclear") if f"svdd {w}" in text or f"= {w}" in text] == [word]


def test_every_retention_row_prints_its_protocol_and_both_budgets(page: str) -> None:
    rows = re.findall(r'<tr(?: class="own")?><th scope="row"><span class="policy">.*?</tr>', section(page, "retention"))
    assert len(rows) == 2 * 6 * 5
    for row in rows:
        assert ("fixed-context" in row) != ("streamed" in row)
        if "hidden" not in row and "not defined" not in row:
            assert words(row).count("24.1 %" if "streamed" in row else "32.3 %") == 2


def test_protocols_never_share_a_table_or_a_figure(page: str) -> None:
    for block in re.findall(r"<table.*?</table>|<figure.*?</figure>", page, re.DOTALL):
        if "published" in block or "Protocols" in block:
            continue
        assert not ("fixed-context" in block and "streamed" in block)
    assert "not to be compared" in section(page, "retention")


def test_figures_draw_every_channel_and_policy_for_all_and_for_measured_event_hours(page: str) -> None:
    forest = html5lib.parse(section(page, "retention"), namespaceHTMLElements=False)
    drawings = [
        svg
        for svg in forest.iter("{http://www.w3.org/2000/svg}svg")
        if (svg.get("aria-labelledby") or "").startswith("forest-fixed")
    ]
    assert len(drawings) == 2
    for drawing in drawings:
        assert (
            len([m for m in marks(drawing) if "reach" not in m and "hollow" not in m]) == 6 * 5 + 5 * 5
        )  # names + estimates
        assert len([m for m in marks(drawing) if "reach" not in m and "hollow" in m]) == 5 * 5


def marks(drawing: Element) -> list[str]:
    shapes = [e for e in drawing.iter() if e.tag.rsplit("}", 1)[-1] in {"circle", "polygon"}]
    return [e.get("class") for e in shapes if "p-" in e.get("class")]


def test_an_estimate_stands_where_its_value_lies_on_the_axis() -> None:
    study = sample.study()
    row = next(r for r in study["retention"] if (r["channel"], r["policy"], r["events"]) == ("spo2", "svdd", "all"))
    study["retention"] = [row | {"retention": 0.25, "low": 0.0, "high": 1.0}]
    drawing = re.search(r"<svg[^>]*forest-fixed-context-wide.*?</svg>", render_report(study), re.DOTALL).group(0)
    low, high = (
        float(x)
        for x in re.search(
            r'<line x1="([\d.]+)" y1="[\d.]+" x2="([\d.]+)" y2="[\d.]+" class="reach p-svdd"', drawing
        ).groups()
    )
    centre = float(re.findall(r'<circle cx="([\d.]+)"[^>]*class="p-svdd"', drawing)[-1])
    assert centre == pytest.approx(low + 0.25 * (high - low), abs=0.1)


def test_published_numbers_look_different_and_keep_their_printed_decimals(page: str) -> None:
    table = section(page, "published")
    shown = re.findall(r'<span class="number published">([^<]*)</span>', table)
    assert {"0.80", "0.05", "0.4644", "+0.239", "+0.1944 to +0.2835", "1,329", "718"} <= set(shown)
    assert '<span class="number measured">0.688</span>' in table
    assert "published" not in set(re.findall(r'<span class="number (\w+)">', section(page, "retention")))


def test_audit_puts_the_published_row_under_ours_and_names_what_failed(page: str) -> None:
    text = words(section(page, "audit"))
    assert "Hourly vitals, deduplicated built by admission; target 1.0 × 10⁻⁹, met by 300" in text
    assert "published 299 300 1.6 × 10⁻⁹ 5.6 × 10⁻⁵ 1.1 × 10⁻² not given" in text
    assert "failures: not ready 1" in text


def test_simulated_study_marks_every_figure_drawing_table_and_number(simulated_page: str, page: str) -> None:
    for figure in re.findall(r"<figure.*?</figure>", simulated_page, re.DOTALL):
        assert "Simulated: invented patients" in figure
        drawings = re.findall(r'<svg[^>]*role="img".*?</svg>', figure, re.DOTALL)
        assert drawings
        assert all("SIMULATED" in drawing for drawing in drawings)
    assert '<p class="banner"' in simulated_page
    results = re.sub(
        r'<section id="audit".*?</section>|<ul class="looks">.*?</ul>', "", simulated_page, flags=re.DOTALL
    )
    assert 'class="number measured"' not in results
    assert 'class="number simulated"' in results
    assert "SIMULATED" not in page
    assert "invented" not in re.sub(r'<ul class="looks">.*?</ul>', "", page, flags=re.DOTALL)


def test_what_is_not_defined_gives_its_reason_below_the_table() -> None:
    study = sample.study()
    rows = [row for row in study["retention"] if row["channel"] == "spo2"]
    for row in rows:
        row.update(
            retention=None,
            retrieval=None,
            low=None,
            high=None,
            budget=None,
            stays=0,
            patients=0,
            reason="channel never measured",
        )
    study["retention"] = rows
    text = words(section(render_report(study), "retention"))
    assert "Channel never measured." in text
    assert "not defined" in text


def test_provenance_lists_settings_versions_digests_and_the_row_count(page: str) -> None:
    text = words(section(page, "provenance"))
    assert "668,862 observed, 668,862 in a complete copy of this release; all of it was read." in text
    assert "svdd.sigma 3.0" in text
    assert "duckdb 2.0.1" in text
    for digest in sample.study()["queries"].values():
        assert digest in text


def test_a_source_that_differs_from_its_release_is_said_to() -> None:
    study = sample.study()
    study["source"]["expected_rows"] = 700_000
    assert "the source differs from the complete release" in words(section(render_report(study), "provenance"))


def test_attrition_panels_show_all_reasons_and_both_ends(page: str) -> None:
    panels = section(page, "cohort")
    for text in ("668,862", "541,270", "98,411", "140", "68", "35"):
        assert f">{text}</text>" in panels


def test_numbers_are_printed_with_fixed_decimals_and_a_true_minus() -> None:
    assert fraction(-0.0844, Kind.MEASURED, signed=True).text == "−0.084"
    assert fraction(-0.0001, Kind.MEASURED, signed=True).text == "0.000"
    assert percent(0.32258, Kind.MEASURED).text == "32.3\u00a0%"
    assert count(668_862, Kind.MEASURED).text == "668,862"
    assert interval(-0.1, None, Kind.MEASURED, "few").note == "few"
    assert fraction(float("nan"), Kind.MEASURED).kind is Kind.UNDEFINED
    assert scientific(3.14e-15, Kind.MEASURED).text == "3.1\u2009×\u200910⁻¹⁵"
    assert scientific(0.0, Kind.MEASURED).text == "0"
    assert as_published(0.8, "").text + as_published(0.8, "").pad == "0.80\u2007\u2007"


def test_scale_keeps_values_inside_its_ends() -> None:
    scale = Scale(0, 1, 100, 300)
    assert [scale(value) for value in (-5, 0, 0.5, 1, 9)] == [100, 100, 200, 300, 300]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/home/someone/mimic iv", "[path not shown] iv"),
        ("file:///data/x.csv", "[path not shown]"),
        ("C:\\Users\\x", "[path not shown]"),
        ("source at ~/mimic", "source at [path not shown]"),
        ("patient 10004235", "patient [number not shown]"),
        ("MIMIC-IV v3.1 (432,997,491 rows)", "MIMIC-IV v3.1 (432,997,491 rows)"),
        ("stays.sql and/or a 1/2 share", "stays.sql and/or a 1/2 share"),
    ],
)
def test_free_text_loses_paths_and_long_numbers_only(text: str, shown: str) -> None:
    assert plain(text) == shown


def test_every_policy_that_a_study_compares_is_explained():
    study = sample.study()
    extra = [row | {"policy": "ensemble"} for row in study["retention"] if row["policy"] == "random"]
    told = render_report(study | {"retention": [*study["retention"], *extra]})
    assert "several measures of the unusual" in told
    assert "several measures of the unusual" not in render_report(study)
    assert set(FixedContext.policies) <= {*POLICIES, *OTHER_POLICIES}

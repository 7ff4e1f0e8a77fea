"""Values: impossible numbers, units, copies and competing instruments; each rule in ten rows or fewer."""

from __future__ import annotations

import pytest
from tiny_source import (
    ART_DBP,
    ART_SBP,
    BASE,
    CELSIUS,
    CUFF_DBP,
    CUFF_SBP,
    FAHRENHEIT,
    HR,
    RR,
    SPO2,
    built_from,
    reading,
)

IN_HOUR_1, LATER_IN_HOUR_1 = "2150-01-01 11:00:00", "2150-01-01 11:30:00"


@pytest.mark.parametrize(
    ("channel", "item", "number"),
    [
        ("hr", HR, 10_000_000),
        ("hr", HR, 0),
        ("rr", RR, 7_000_400),
        ("spo2", SPO2, 0),
        ("sbp", ART_SBP, -8),
        ("temp", CELSIUS, 12),
    ],
)
def test_an_implausible_value_is_null_and_counted_neither_clipped_nor_averaged(tmp_path, channel, item, number):
    cohort = built_from(tmp_path, [*BASE, (item, IN_HOUR_1, number)])
    assert 1 not in cohort.measured(channel)
    assert cohort.rows_left_out == {f"implausible_{channel}": 1}


def test_the_ends_of_a_plausible_range_are_plausible(tmp_path):
    cohort = built_from(tmp_path, [*BASE, (HR, IN_HOUR_1, 300), (HR, "2150-01-01 12:00:00", 10)])
    assert cohort.measured("hr") == {0: 80, 1: 300, 2: 10}


def test_fahrenheit_under_the_celsius_item_is_converted_and_counted(tmp_path):
    cohort = built_from(tmp_path, [*BASE, (CELSIUS, IN_HOUR_1, 98.6)])
    assert cohort.measured("temp")[1] == pytest.approx(37.0, abs=1e-12)
    assert cohort.result.attrition["repaired"] == {"degF_under_degC": 1}


def test_celsius_under_the_fahrenheit_item_is_kept_and_counted(tmp_path):
    cohort = built_from(tmp_path, [*BASE, (FAHRENHEIT, IN_HOUR_1, 38.0)])
    assert cohort.measured("temp")[1] == 38.0
    assert cohort.result.attrition["repaired"] == {"degC_under_degF": 1}


def test_the_paper_preset_repairs_no_unit(tmp_path):
    cohort = built_from(tmp_path, [*BASE, (CELSIUS, IN_HOUR_1, 98.6), (HR, "2150-01-03 09:00:00", 80)], preset="paper")
    assert cohort.rows_left_out == {"implausible_temp": 1}


def test_systolic_below_diastolic_at_one_time_nulls_both_and_is_counted(tmp_path):
    cohort = built_from(tmp_path, [*BASE, (CUFF_SBP, IN_HOUR_1, 60), (CUFF_DBP, IN_HOUR_1, 90)])
    assert cohort.measured("sbp") == {0: 120}
    assert cohort.measured("dbp") == {0: 70}
    assert cohort.rows_left_out == {"systolic_below_diastolic": 2}


def test_equal_pressures_and_those_of_another_instrument_or_time_are_not_an_inversion(tmp_path):
    rows = [(CUFF_SBP, IN_HOUR_1, 80), (CUFF_DBP, IN_HOUR_1, 80), (ART_DBP, "2150-01-01 12:00:00", 90),
            (CUFF_SBP, "2150-01-01 12:00:00", 85)]  # fmt: skip
    cohort = built_from(tmp_path, [*BASE, *rows])
    assert cohort.measured("sbp") == {0: 120, 1: 80, 2: 85}
    assert cohort.rows_left_out == {}


def test_arterial_pressure_comes_before_cuff_within_an_hour_and_cuff_serves_the_other_hours(tmp_path):
    rows = [(CUFF_SBP, IN_HOUR_1, 150), (ART_SBP, LATER_IN_HOUR_1, 130), (CUFF_SBP, "2150-01-01 12:00:00", 140)]
    cohort = built_from(tmp_path, [*BASE, *rows])
    assert cohort.measured("sbp") == {0: 120, 1: 130, 2: 140}
    assert cohort.rows_left_out == {"other_instrument_first": 1}


def test_an_inverted_arterial_pair_leaves_the_hour_to_the_cuff(tmp_path):
    rows = [(ART_SBP, IN_HOUR_1, 60), (ART_DBP, IN_HOUR_1, 90), (CUFF_SBP, LATER_IN_HOUR_1, 125)]
    cohort = built_from(tmp_path, [*BASE, *rows])
    assert cohort.measured("sbp")[1] == 125
    assert cohort.rows_left_out == {"systolic_below_diastolic": 2}


def test_the_paper_preset_averages_arterial_and_cuff(tmp_path):
    rows = [(CUFF_SBP, IN_HOUR_1, 150), (ART_SBP, LATER_IN_HOUR_1, 130), (HR, "2150-01-03 09:00:00", 80)]
    assert built_from(tmp_path, [*BASE, *rows], preset="paper").measured("sbp")[1] == 140


def test_identical_copies_count_once(tmp_path):
    rows = [(HR, IN_HOUR_1, 90), (HR, IN_HOUR_1, 90), (HR, LATER_IN_HOUR_1, 60)]
    cohort = built_from(tmp_path, [*BASE, *rows])
    assert cohort.measured("hr")[1] == 75
    assert cohort.rows_left_out == {"identical_copy": 1}


def test_distinct_values_at_one_time_give_their_midpoint(tmp_path):
    rows = [
        (HR, IN_HOUR_1, 90),
        (HR, IN_HOUR_1, 100),
        (HR, IN_HOUR_1, 98),
        (HR, IN_HOUR_1, 100),
        (HR, LATER_IN_HOUR_1, 75),
    ]
    cohort = built_from(tmp_path, [*BASE[1:], *rows])
    assert cohort.measured("hr")[1] == (95 + 75) / 2
    assert cohort.rows_left_out == {"identical_copy": 1}


def test_one_temperature_charted_in_both_units_is_one_reading(tmp_path):
    rows = [(FAHRENHEIT, IN_HOUR_1, 98.6), (CELSIUS, IN_HOUR_1, 37), (CELSIUS, LATER_IN_HOUR_1, 39)]
    cohort = built_from(tmp_path, [*BASE, *rows])
    assert cohort.measured("temp")[1] == pytest.approx(38.0, abs=1e-12)
    assert cohort.rows_left_out == {}


def test_a_row_without_a_number_is_counted(tmp_path):
    cohort = built_from(tmp_path, [*BASE, reading(HR, IN_HOUR_1, "", value="see note")])
    assert cohort.rows_left_out == {"no_number": 1}


def test_rows_of_other_items_are_counted(tmp_path):
    assert built_from(tmp_path, [*BASE, (211, IN_HOUR_1, 80), (220052, IN_HOUR_1, 85)]).rows_left_out == {
        "other_item": 2
    }


def test_an_event_needs_a_value_beyond_its_threshold(tmp_path):
    rows = [
        (SPO2, IN_HOUR_1, 90),
        (SPO2, "2150-01-01 12:00:00", 89),
        (HR, IN_HOUR_1, 130),
        (HR, "2150-01-01 12:00:00", 131),
    ]
    hours = built_from(tmp_path, [*BASE, *rows]).hours
    assert hours["spo2_event"].to_list()[:3] == [False, False, True]
    assert hours["hr_event"].to_list()[:3] == [False, False, True]
    assert hours["event"].to_list()[:3] == [False, False, True]

"""Time: the hour of a reading, where a stay begins and ends, who may be seen; each rule in ten rows or fewer."""

from __future__ import annotations

import pytest
from tiny_source import (
    ADMISSION,
    BASE,
    CELSIUS,
    HR,
    INTIME,
    OUTTIME,
    PATIENT,
    STAY,
    admission,
    build,
    built_from,
    person,
    stay,
    write_source,
)  # fmt: skip

from cohort_sql.source import find_source, preflight

OTHER = {"stay_id": STAY + 1, "subject_id": PATIENT + 1, "hadm_id": ADMISSION + 1}


def hours_of(tmp_path, *times, intime="2150-01-01 10:00:00", **settings):
    rows = [*BASE[1:], *((HR, time, 80 + place) for place, time in enumerate(times))]
    rows = [(item, max(time, intime), number) for item, time, number in rows[:5]] + rows[5:]
    return built_from(tmp_path, rows, stays=[stay(intime=intime)], **settings).measured("hr")


def test_an_hour_holds_its_first_second_and_its_last(tmp_path):
    times = ("2150-01-01 10:00:00", "2150-01-01 10:59:59", "2150-01-01 11:00:00", "2150-01-01 11:59:59")
    assert hours_of(tmp_path, *times) == {0: 80.5, 1: 82.5}


def test_hours_count_from_intime_and_not_from_the_full_hour(tmp_path):
    times = ("2150-01-01 10:30:15", "2150-01-01 11:30:14", "2150-01-01 11:30:15")
    assert hours_of(tmp_path, *times, intime="2150-01-01 10:30:15") == {0: 80.5, 1: 82}


@pytest.mark.parametrize("preset", ["paper", "causal"])
def test_a_reading_half_an_hour_before_intime_is_not_in_hour_0(tmp_path, preset):
    rows = [*BASE, (HR, "2150-01-01 09:30:00", 120), (HR, "2150-01-03 09:00:00", 80)]
    cohort = built_from(tmp_path, rows, preset=preset)
    assert cohort.measured("hr")[0] == 80
    assert cohort.rows_left_out == {"before_intime": 1}


def test_a_reading_at_outtime_is_outside_and_one_a_second_before_is_inside(tmp_path):
    cohort = built_from(tmp_path, [*BASE, (HR, "2150-01-04 09:59:59", 90), (HR, OUTTIME, 100)])
    assert cohort.measured("hr") == {0: 80, 71: 90}
    assert cohort.rows_left_out == {"at_or_after_outtime": 1}
    assert cohort.stays["hours"].to_list() == [72]


def test_a_stay_ends_at_death_where_that_is_known(tmp_path):
    rows = [*BASE, (HR, "2150-01-02 09:59:00", 90), (HR, "2150-01-02 10:30:00", 20)]
    cohort = built_from(tmp_path, rows, admissions=[admission(deathtime="2150-01-02 10:30:00")])
    assert cohort.rows_left_out == {"at_or_after_death": 1}
    assert cohort.stays["hours"].to_list() == [25]


def test_a_row_charted_years_late_lengthens_no_causal_stay(tmp_path):
    cohort = built_from(tmp_path, [*BASE, (HR, "2152-01-01 10:00:00", 90)])
    assert cohort.rows_left_out == {"at_or_after_outtime": 1}
    assert cohort.stays["hours"].to_list() == [72]


def test_a_row_charted_years_late_makes_a_long_paper_grid_that_is_named(tmp_path):
    cohort = built_from(tmp_path, [*BASE, (HR, "2170-01-01 10:00:00", 90)], preset="paper")
    assert cohort.stays["hours"].to_list() == [175_321]
    assert cohort.hours["hour"].to_list() == list(range(175_321))
    assert cohort.result.attrition["long_grids"] == 1


@pytest.mark.parametrize(
    ("times", "reason"),
    [
        ({"outtime": ""}, "outtime_missing"),
        ({"outtime": "2150-01-01 09:00:00"}, "outtime_not_after_intime"),
        ({"outtime": INTIME}, "outtime_not_after_intime"),
        ({"intime": ""}, "intime_missing"),
    ],
)
def test_a_stay_without_a_span_of_time_is_left_out_and_counted(tmp_path, times, reason):
    cohort = built_from(tmp_path, [*BASE, (HR, INTIME, 80, STAY + 1)], stays=[stay(), stay(**OTHER, **times)],
                        people=[person(), person(PATIENT + 1)])  # fmt: skip
    assert cohort.stays_left_out == {reason: 1}
    assert cohort.rows_left_out == {f"stay_{reason}": 1}


def test_a_death_before_intime_leaves_the_stay_out(tmp_path):
    rows = [*BASE, (HR, INTIME, 80, STAY + 1)]
    cohort = built_from(tmp_path, rows, stays=[stay(), stay(**OTHER)], people=[person(), person(PATIENT + 1)],
                        admissions=[admission(), admission(ADMISSION + 1, "2149-12-31 00:00:00")])  # fmt: skip
    assert cohort.stays_left_out == {"death_not_after_intime": 1}


def test_the_causal_preset_takes_the_times_where_los_disagrees_and_the_preflight_says_so(tmp_path):
    root = write_source(tmp_path / "source", stays=[stay(los=0.1)])
    assert build(root, tmp_path / "out").stays["hours"].to_list() == [72]
    assert any("1 of 1 stays with a los" in fact for fact in preflight(find_source(root), preset="causal"))


def test_overlapping_stays_of_a_patient_are_kept_apart_by_stay_id_and_told(tmp_path):
    second = stay(STAY + 1, intime="2150-01-02 10:00:00", outtime="2150-01-06 10:00:00")
    root = write_source(tmp_path / "source", [*BASE, (HR, "2150-01-03 10:00:00", 99, STAY + 1)], stays=[stay(), second])
    cohort = build(root, tmp_path / "out")
    assert cohort.hours.filter("hr_measured").select("stay_id", "hour", "hr").rows() == [
        (STAY, 0, 80),
        (STAY + 1, 24, 99),
    ]
    assert any("1 of 2 stays beginning before" in fact for fact in preflight(find_source(root), preset="causal"))


def test_a_stay_without_vitals_is_left_out_and_counted(tmp_path):
    cohort = built_from(tmp_path, BASE, stays=[stay(), stay(STAY + 1)])
    assert cohort.stays_left_out == {"no_vitals": 1}
    assert cohort.result.attrition["patients"] == {"source": 1, "used": 1, "left_out": {}}


def test_a_reading_of_no_known_stay_is_counted(tmp_path):
    cohort = built_from(tmp_path, [*BASE, (HR, INTIME, 80, 39999999), (HR, INTIME, 80, "")])
    assert cohort.rows_left_out == {"no_stay_id": 1, "stay_unknown": 1}


def test_a_patient_who_is_never_an_adult_is_left_out_before_any_stay(tmp_path):
    people = [person(), person(PATIENT + 1, anchor_age=17)]
    cohort = built_from(tmp_path, [*BASE, (HR, INTIME, 80, STAY + 1)], stays=[stay(), stay(**OTHER)], people=people)
    assert cohort.stays_left_out == {"patient_minor": 1}
    assert cohort.result.attrition["patients"]["left_out"] == {"patient_minor": 1}


def test_only_the_stays_of_childhood_are_left_out_of_a_patient_who_grew_up(tmp_path):
    child = stay(STAY + 1, intime="2148-01-01 10:00:00", outtime="2148-01-03 10:00:00")
    cohort = built_from(tmp_path, BASE, stays=[stay(), child], people=[person(anchor_age=19)])
    assert cohort.stays_left_out == {"stay_minor": 1}
    assert cohort.stays["age_years"].to_list() == [19]


def test_a_value_is_carried_forward_to_the_limit_of_its_channel_and_then_becomes_the_median(tmp_path):
    cohort = built_from(tmp_path, [*BASE, (HR, "2150-01-01 12:00:00", 100), (CELSIUS, "2150-01-01 12:00:00", 39)])
    assert cohort.channel("hr")[:10] == [80, 80, 100, 100, 100, 100, 100, 100, 100, 90]
    assert cohort.hours["hr_age"].to_list()[:10] == [0, 1, 0, 1, 2, 3, 4, 5, 6, None]
    assert cohort.channel("temp")[14:16] == [39, 38]
    assert cohort.hours["temp_age"].to_list()[14:16] == [12, None]


def test_the_causal_preset_fills_nothing_backward_and_paper_does(tmp_path):
    rows = [*BASE[1:], (HR, "2150-01-01 12:00:00", 100), (HR, "2150-01-03 09:00:00", 60)]
    source = write_source(tmp_path / "source", rows)
    careful, published = build(source, tmp_path / "causal"), build(source, tmp_path / "paper", preset="paper")
    assert careful.channel("hr")[:3] == [80, 80, 100]
    assert published.channel("hr")[:3] == [100, 100, 100]
    assert careful.hours["hr_age"].to_list()[:3] == published.hours["hr_age"].to_list()[:3] == [None, None, 0]


def test_the_paper_preset_needs_48_grid_hours_and_a_los_of_two_days(tmp_path):
    stays = [stay(), stay(STAY + 1), stay(STAY + 2, los=1.99), stay(STAY + 3, los="")]
    rows = [
        *BASE,
        (HR, "2150-01-03 09:00:00", 90),
        (HR, INTIME, 70, STAY + 1),
        (HR, "2150-01-03 08:59:00", 70, STAY + 1),
    ]
    cohort = built_from(tmp_path, rows, stays=stays, preset="paper")
    assert cohort.stays["hours"].to_list() == [48]
    assert cohort.stays_left_out == {"los_missing": 1, "los_under_2_days": 1, "under_48_hours": 1}


def test_the_paper_grid_begins_with_the_first_reading(tmp_path):
    rows = [(item, "2150-01-01 15:00:00", number) for item, _, number in BASE]
    cohort = built_from(tmp_path, [*rows, (HR, "2150-01-03 14:00:00", 90)], preset="paper")
    assert cohort.hours["hour"].to_list() == list(range(5, 53))

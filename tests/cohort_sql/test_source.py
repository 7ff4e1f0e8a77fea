"""Source files: where they may lie, how they may be written, and what is said of those that cannot be used."""

from __future__ import annotations

import gzip
import shutil

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from tiny_source import BASE, HR, INTIME, as_csv, build, built_from, person, reading, stay, write, write_source

from cohort_sql import checks
from cohort_sql.build import CohortError
from cohort_sql.engine import Engine
from cohort_sql.source import SourceError, find_source, preflight

CHART = "icu/chartevents.csv.gz"
STAYS = "icu/icustays.csv.gz"


def refusal(root, preset="causal"):
    """Return what the preflight or the build says against a source: one line without ids, values or paths."""
    with pytest.raises(SourceError) as caught:
        preflight(find_source(root), preset=preset)
    text = str(caught.value)
    assert "\n" not in text
    assert str(root) not in text
    assert not {"10000001", "30000001", "20000001"} & set(text.replace(",", " ").split())
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    return text


def chart_text(*extra):
    rows = [reading(*row) for row in BASE]
    return as_csv([*rows, *extra])


# --- where the files lie --------------------------------------------------------------------------


@pytest.mark.parametrize("named", ["", "icu", ".."])
def test_the_root_its_icu_folder_and_its_parent_all_find_the_source(tmp_path, named):
    root = write_source(tmp_path / "mimiciv")
    source = find_source(root / named)
    assert source.chartevents == root.resolve() / CHART
    assert source.patients == root.resolve() / "hosp/patients.csv.gz"


def test_a_directory_named_with_a_quote_a_space_and_glob_signs_works(tmp_path):
    root = write_source(tmp_path / "it's my [x] data*?")
    preflight(find_source(root), preset="causal")
    assert build(root, tmp_path / "out").result.stays == 1


def test_two_sources_below_one_directory_are_refused_with_their_count(tmp_path):
    write_source(tmp_path / "a")
    write_source(tmp_path / "b")
    with pytest.raises(SourceError, match="2 directories below hold icu/icustays; name the one to use"):
        find_source(tmp_path)


@pytest.mark.parametrize("name", ["nowhere", "empty"])
def test_a_directory_without_the_files_is_refused(tmp_path, name):
    (tmp_path / "empty").mkdir()
    with pytest.raises(SourceError, match="name the directory that holds icu/ and hosp/"):
        find_source(tmp_path / name)


def test_a_missing_chartevents_is_named(tmp_path):
    root = write_source(tmp_path / "source")
    (root / CHART).unlink()
    with pytest.raises(SourceError, match=r"icu/chartevents: not found as .parquet, .csv or .csv.gz"):
        find_source(root)


def test_missing_hospital_tables_are_told_with_what_follows(tmp_path):
    root = write_source(tmp_path / "source")
    shutil.rmtree(root / "hosp")
    facts = preflight(find_source(root), preset="causal")
    assert "hosp/patients: not found; age is unknown, so nobody is left out as a minor" in facts
    assert build(root, tmp_path / "out").result.stays == 1


def test_the_release_is_recognised_by_its_header(tmp_path):
    new = write_source(tmp_path / "new")
    rows = [{key: value for key, value in reading(*row).items() if key != "caregiver_id"} for row in BASE]
    old = write_source(tmp_path / "old", rows)
    assert find_source(new).release == "MIMIC-IV layout of 2.2 or later"
    assert find_source(old).release == "MIMIC-IV layout before 2.2"
    assert build(new, tmp_path / "n").hours.equals(build(old, tmp_path / "o").hours)


def test_the_counts_of_a_known_release_stand_beside_those_expected(tmp_path):
    stays = [stay(stay_id=1 + place, subject_id=1 + place) for place in range(140)]
    rows = [(item, time, number, 1) for item, time, number in BASE]
    cohort = built_from(tmp_path, rows, stays=stays, people=[person(row["subject_id"]) for row in stays])
    assert cohort.result.attrition["expected"] == {
        "release": "MIMIC-IV Clinical Demo 2.2",
        "stays": {"observed": 140, "expected": 140},
        "rows": {"observed": 6, "expected": 668_862},
    }


# --- how they are written -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """The tiny source as gzipped CSV, and the hours built from it."""
    folder = tmp_path_factory.mktemp("plain")
    return built_from(folder, [*BASE, (HR, "2150-01-01 11:00:00", 99)])


def same(tmp_path, plain, root):
    preflight(find_source(root), preset="causal")
    return build(root, tmp_path / "out").hours.equals(plain.hours)


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz"])
def test_plain_and_gzipped_csv_give_the_same_hours(tmp_path, plain, suffix):
    rows = [*BASE, (HR, "2150-01-01 11:00:00", 99)]
    assert same(tmp_path, plain, write_source(tmp_path / "source", rows, suffix=suffix))


@pytest.mark.parametrize("time", [pa.timestamp("s"), pa.timestamp("us", "UTC"), pa.string()])
def test_parquet_typed_zoned_or_as_text_gives_the_same_hours(tmp_path, plain, time):
    root = write_source(tmp_path / "source", [*BASE, (HR, "2150-01-01 11:00:00", 99)])
    for path in list(root.glob("*/*.csv.gz")):
        names = gzip.decompress(path.read_bytes()).decode().split("\n")[0].split(",")
        text = pacsv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()) if time == pa.string() else {})
        table = pacsv.read_csv(path, convert_options=text)
        times = {
            name: table[name].cast(time) for name in names if name.endswith("time") and table[name].null_count == 0
        }
        for name, column in times.items():
            table = table.set_column(names.index(name), name, column)
        pq.write_table(table, str(path).replace(".csv.gz", ".parquet"))
        path.unlink()
    assert same(tmp_path, plain, root)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: "\ufeff" + text,
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text.replace("charttime", '"charttime"'),
        lambda text: text.replace("itemid", "ITEMID"),
        lambda text: text.rstrip("\n"),
        lambda text: text.replace("2150-01-01 11:00:00", "2150-01-01T11:00:00"),
        lambda text: text.replace("2150-01-01 11:00:00", "2150-01-01 11:00"),
        lambda text: text.replace("2150-01-01 11:00:00", "2150-01-01 11:00:00.000"),
        lambda text: text.replace("30000001", "30000001.0"),
        lambda text: "\n".join(f"{number or ''},{line}" for number, line in enumerate(text.rstrip("\n").split("\n"))),
        lambda text: "\n".join(",".join(reversed(line.split(","))) for line in text.split("\n")),
    ],
    ids=[
        "byte-order mark",
        "CRLF",
        "quoted header",
        "upper-case header",
        "no last line break",
        "T between date and time",
        "no seconds",
        "milliseconds",
        "ids as decimals",
        "a row index in front",
        "columns in another order",
    ],
)
def test_ways_of_writing_the_same_rows_give_the_same_hours(tmp_path, plain, change):
    root = write_source(tmp_path / "source")
    write(root / CHART, change(chart_text(reading(HR, "2150-01-01 11:00:00", 99))))
    assert same(tmp_path, plain, root)


def test_a_first_quoted_value_with_line_breaks_late_in_the_file_survives(tmp_path):
    text = chart_text()
    other = "10000001,20000001,30000001,,2150-01-01 10:00:00,,211,plain,,,0\n"
    late = '10000001,20000001,30000001,,2150-01-01 10:00:00,,211,"a, ""quoted""\nremark\r\nof 3 lines",,,0\n'
    root = write_source(tmp_path / "source")
    write(
        root / CHART, text + other * 60_000 + late + "10000001,20000001,30000001,,2150-01-01 11:00:00,,220045,x,99,,0\n"
    )
    preflight(find_source(root), preset="causal")
    cohort = build(root, tmp_path / "out")
    assert cohort.measured("hr") == {0: 80, 1: 99}
    assert cohort.result.attrition["rows"]["source"] == 6 + 60_000 + 2


def test_text_in_the_value_column_first_seen_late_changes_nothing(tmp_path):
    numbers = "10000001,20000001,30000001,,2150-01-01 10:00:00,,211,5,5,,0\n"
    root = write_source(tmp_path / "source")
    write(root / CHART, chart_text() + numbers * 60_000 + numbers.replace("211,5,5", "220045,ninety,91"))
    assert build(root, tmp_path / "out").measured("hr") == {0: (80 + 91) / 2}


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "column"), [(CHART, "valuenum"), (CHART, "charttime"), (STAYS, "intime"), (STAYS, "stay_id")]
)
def test_a_missing_column_is_named_with_its_file(tmp_path, table, column):
    root = write_source(tmp_path / "source")
    write(root / table, gzip.decompress((root / table).read_bytes()).decode().replace(column, "other", 1))
    assert refusal(root) == f"{table}: no column {column} in the header; export it with the MIMIC-IV column names"


def test_each_preset_needs_its_own_columns_of_icustays(tmp_path):
    root = write_source(tmp_path / "source", stays=[{k: v for k, v in stay().items() if k != "los"}])
    preflight(find_source(root), preset="causal")
    assert "no column los" in refusal(root, preset="paper")


def test_a_column_that_is_there_twice_is_refused(tmp_path):
    root = write_source(tmp_path / "source")
    write(root / CHART, chart_text().replace("storetime", "charttime", 1))
    assert refusal(root) == f"{CHART}: column charttime is there 2 times; keep one"


@pytest.mark.parametrize("table", [CHART, STAYS, "hosp/patients.csv.gz"])
def test_an_empty_file_and_one_without_rows_are_refused(tmp_path, table):
    root = write_source(tmp_path / "source")
    header = gzip.decompress((root / table).read_bytes()).decode().split("\n")[0]
    write(root / table, "")
    with pytest.raises(SourceError, match=f"{table}: is empty"):
        preflight(find_source(root), preset="causal")
    write(root / table, header + "\n")
    assert refusal(root) == f"{table}: has a header and no row; copy or download it again"


def test_a_file_of_no_bytes_is_refused(tmp_path):
    root = write_source(tmp_path / "source")
    (root / STAYS).write_bytes(b"")
    assert refusal(root) == f"{STAYS}: is empty; copy or download it again"


@pytest.mark.parametrize("table", [CHART, STAYS])
def test_a_truncated_gzip_is_refused(tmp_path, table):
    root = write_source(tmp_path / "source", [*BASE, *((211, INTIME, number) for number in range(20_000))])
    content = (root / table).read_bytes()
    (root / table).write_bytes(content[: len(content) - 9])
    assert refusal(root) == f"{table}: the gzip file ends early or is damaged; copy or download it again"


def test_bytes_that_are_no_gzip_are_refused(tmp_path):
    root = write_source(tmp_path / "source")
    (root / CHART).write_bytes(b"subject_id,stay_id\n")
    with pytest.raises(SourceError, match="cannot be opened as gzipped CSV; copy or download it again"):
        find_source(root)


@pytest.mark.parametrize(
    ("table", "row", "count", "column", "form"),
    [
        (CHART, reading(HR, INTIME, "ninety"), 7, "valuenum", "numbers"),
        (CHART, reading(211, INTIME, "12,5"), 7, "valuenum", "numbers"),
        (CHART, reading(HR, "01/02/2150 10:00", 80), 7, "charttime", "times like 2150-01-31 13:00:00"),
        (CHART, reading(HR, "2150-02-30 10:00:00", 80), 7, "charttime", "times like 2150-01-31 13:00:00"),
        (CHART, reading(HR, "2150-01-01", 80), 7, "charttime", "times like 2150-01-31 13:00:00"),
        (CHART, reading(HR, "2150-01-01 10:00:00+02:00", 80), 7, "charttime", "times like 2150-01-31 13:00:00"),
        (CHART, reading("heart rate", INTIME, 80), 7, "itemid", "whole numbers"),
        (CHART, reading(HR, INTIME, 80, stay_id="30000001.5"), 7, "stay_id", "whole numbers"),
        (STAYS, stay(2, intime="1 January"), 2, "intime", "times like 2150-01-31 13:00:00"),
        (STAYS, stay(2, los="long"), 2, "los", "numbers"),
        (STAYS, stay(2, subject_id=""), 2, "subject_id", "whole numbers"),
    ],
)
def test_a_row_that_cannot_be_read_is_counted_under_its_column(tmp_path, table, row, count, column, form):
    rows = [reading(*base) for base in BASE] if table == CHART else [stay()]
    root = write_source(tmp_path / "source")
    write(root / table, as_csv([*rows, row]))
    assert refusal(root) == f"{table}: {column}: 1 of {count} rows are not {form}; export it again"


def test_a_file_too_large_to_be_read_twice_is_checked_while_it_is_scanned(tmp_path, monkeypatch):
    monkeypatch.setattr(checks, "READ_WHOLE_BYTES", 0)
    monkeypatch.setattr(checks, "HEAD_ROWS", 3)
    root = write_source(tmp_path / "source", [*BASE, (HR, INTIME, "ninety")])
    preflight(find_source(root), preset="causal")
    with pytest.raises(SourceError, match=r"icu/chartevents.csv.gz: valuenum: 1 of 7 rows are not numbers"):
        build(root, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert list((tmp_path / "scratch/ingested").iterdir()) == []


def test_a_row_with_too_many_fields_is_refused_by_its_line(tmp_path):
    root = write_source(tmp_path / "source")
    write(root / CHART, chart_text() + "1,2,3,4,5,6,7,8,9,10,11,12,13\n")
    assert refusal(root).startswith(f"{CHART}: line 8 does not have the columns of the header")


def test_a_stay_id_that_is_there_twice_is_refused(tmp_path):
    assert refusal(write_source(tmp_path / "source", stays=[stay(), stay()])) == (
        f"{STAYS}: 1 rows repeat a stay_id; keep one row a stay"
    )


@pytest.mark.parametrize(("preset", "column"), [("paper", "los"), ("causal", "outtime"), ("causal", "intime")])
def test_a_column_that_is_empty_throughout_is_refused_where_the_preset_needs_it(tmp_path, preset, column):
    root = write_source(tmp_path / "source", stays=[stay(**{column: ""})])
    assert refusal(root, preset) == f"{STAYS}: {column} is empty in all 1 rows; export it again"


@pytest.mark.parametrize(
    ("preset", "row", "people", "reason"),
    [
        ("paper", stay(los=1.5), [person()], "los under 2 days or missing 1"),
        ("causal", stay(), [person(anchor_age=17)], "patient_minor 1"),
        ("causal", stay(outtime=INTIME), [person()], "outtime_not_after_intime 1"),
    ],
)
def test_a_source_without_an_eligible_stay_is_refused_with_the_reasons(tmp_path, preset, row, people, reason):
    root = write_source(tmp_path / "source", stays=[row], people=people)
    assert refusal(root, preset) == f"{STAYS}: no stay is eligible under the {preset} preset ({reason}); check it"


def test_a_source_whose_stays_all_lack_vitals_is_refused_when_built(tmp_path):
    rows = [(item, time, number, 39999999) for item, time, number in BASE]
    with pytest.raises(CohortError, match=r"no stay is eligible under the causal preset \(no_vitals 1\)"):
        built_from(tmp_path, rows)


def test_a_channel_never_measured_is_refused_by_name(tmp_path):
    root = write_source(tmp_path / "source", BASE[:-2])
    assert refusal(root) == (
        f"{CHART}: none of its 4 rows charts spo2, temp as a number; check that its itemids are those of MIMIC-IV"
    )
    with pytest.raises(CohortError, match="icu/chartevents: spo2, temp never measured in the stays"):
        build(root, tmp_path / "out")


# --- fields ---------------------------------------------------------------------------------------

FIELDS = {
    "as_id": {
        **{"1": 1, "007": 7, "+1": 1, "-5": -5, "-0": 0, " 7 ": 7, "1.0": 1, "9223372036854775807": 2**63 - 1},
        **dict.fromkeys(["1.5", "1e3", "1_000", "0x10", "true", "", "9223372036854775808"]),
    },
    "as_time": {
        "2150-01-31 13:00:00": "2150-01-31 13:00:00",
        "2150-01-31T13:00": "2150-01-31 13:00:00",
        " 2150-01-31 13:00:00.5": "2150-01-31 13:00:00.5",
        **dict.fromkeys(["2150-02-30 13:00:00", "10000-01-01 00:00:00", "12150-01-31 13:00", "infinity", "2150-01-31"]),
        **dict.fromkeys(["2150-1-1 01:00:00", "2150-01-31 13:00:00+01", "0044-03-15 (BC) 00:00:00", "epoch", ""]),
    },
}


@pytest.mark.parametrize("macro", FIELDS)
def test_a_field_is_read_in_every_allowed_form_and_in_no_other(tmp_path, macro):
    with Engine(tmp_path) as engine:
        for field, expected in FIELDS[macro].items():
            read = engine.rows(f"select cast({macro}($field) as varchar) as read", field=field)[0]["read"]
            assert read == (None if expected is None else str(expected)), field

"""What a source must be like: columns, rows that can be read, stays that can be chosen; each fault is one line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from cohort_sql import presets
from cohort_sql.attrition import stay_level
from cohort_sql.engine import CHANNELS, Engine, header, place
from cohort_sql.errors import SourceError
from cohort_sql.suppressed import NOBODY, Suppressed

if TYPE_CHECKING:
    from cohort_sql.source import Source

COLUMNS = {
    "icustays": ("subject_id", "hadm_id", "stay_id", "intime", "outtime", "los"),
    "chartevents": ("stay_id", "itemid", "charttime", "valuenum"),
    "patients": ("subject_id", "anchor_age", "anchor_year"),
    "admissions": ("hadm_id", "deathtime"),
}
# Files up to this size are read whole before the study starts; larger ones while they are scanned.
READ_WHOLE_BYTES = 64 * 2**20
WHOLE, HEAD_ROWS = 2**62, 200_000
FORMS = {
    "subject_id": "whole numbers",
    "hadm_id": "whole numbers",
    "stay_id": "whole numbers",
    "itemid": "whole numbers",
    "intime": "times like 2150-01-31 13:00:00",
    "outtime": "times like 2150-01-31 13:00:00",
    "deathtime": "times like 2150-01-31 13:00:00",
    "charttime": "times like 2150-01-31 13:00:00",
    "los": "numbers",
    "valuenum": "numbers",
    "anchor_age": "whole numbers",
    "anchor_year": "whole numbers",
}
STAY_FAULTS = {
    "no_intime": "without intime; they are left out",
    "no_outtime": "without outtime; the causal preset leaves them out",
    "outtime_not_after_intime": "with outtime at or before intime; the causal preset leaves them out",
    "no_los": "without los; the paper preset leaves them out",
    "los_disagrees": "with a los that is an hour or more off their times; causal uses the times, paper the los",
    "overlapping": "beginning before an earlier stay of the patient ends; readings go by their stay_id",
}
ABSENT = {
    "patients": "age is unknown, so nobody is left out as a minor",
    "admissions": "deathtime is unknown, so readings end at outtime",
}


def open_views(engine: Engine, source: Source, suppressed: Suppressed = NOBODY) -> None:
    """Make every table of the source readable by its name, columns bound by name; absent tables read as empty.

    Rows of suppressed stays and patients are not in them, in any table that has the column.
    """
    engine.leave_out(suppressed.by_column())
    for name, columns in COLUMNS.items():
        path = source.tables.get(name)
        if path is not None:
            engine.view(name, path, columns, header(path))
        else:
            engine.empty_view(name, columns)


def check_columns(name: str, path: Path, preset: str) -> None:
    """Refuse a table whose header lacks a column that the preset needs, or has one twice."""
    names = header(path)
    twice = sorted({column for column in names if names.count(column) > 1})
    if twice:
        raise SourceError(f"{place(path)}: column {twice[0]} is there {names.count(twice[0])} times; keep one")
    missing = [column for column in _needed(name, preset) if column not in names]
    if missing:
        raise SourceError(
            f"{place(path)}: no column {', '.join(missing)} in the header; export it with the MIMIC-IV column names"
        )


def _needed(name: str, preset: str) -> tuple[str, ...]:
    if name == "icustays":
        return ("subject_id", "stay_id", "intime", "los" if preset == "paper" else "outtime")
    if name == "chartevents" or preset == "causal":
        return COLUMNS[name]
    return ()


def check_stays(engine: Engine, source: Source, preset: str) -> Iterator[str]:
    """Read icustays whole, refuse it or tell how many stays show each fault."""
    path = source.icustays
    engine.table("icustay", reading=path)
    engine.table("check/stay_fault")
    found = engine.rows("select * from stay_fault")[0]
    _refuse_empty(path, found["stays"])
    refuse_unreadable(path, found, found["stays"])
    if found["repeated"]:
        raise SourceError(f"{place(path)}: {found['repeated']:,} rows repeat a stay_id; keep one row a stay")
    for fault in ("no_intime", "no_los" if preset == "paper" else "no_outtime"):
        if found[fault] == found["stays"]:
            raise SourceError(f"{place(path)}: {fault[3:]} is empty in all {found[fault]:,} rows; export it again")
    yield f"{place(path)}: {found['stays']:,} stays of {found['patients']:,} patients"
    for fault, meaning in STAY_FAULTS.items():
        if found[fault]:
            yield f"{place(path)}: {found[fault]:,} of {found['stays']:,} stays {meaning}"


def check_people(engine: Engine, source: Source, preset: str) -> Iterator[str]:
    """Read the hospital tables that the preset uses; a missing one is told with what follows from it."""
    for name, absent in ABSENT.items() if preset == "causal" else ():
        path = source.tables.get(name)
        if path is None:
            yield f"hosp/{name}: not found; {absent}"
            continue
        engine.table(f"check/{name}_fault", reading=path)
        found = engine.rows(f"select * from {name}_fault")[0]
        _refuse_empty(path, found["found"])
        refuse_unreadable(path, found, found["found"])
        if found["repeated"]:
            raise SourceError(f"{place(path)}: {found['repeated']:,} rows repeat an id; keep one row each")
        yield f"{place(path)}: {found['found']:,} rows"


def check_eligible(engine: Engine, source: Source, preset: str) -> Iterator[str]:
    """Refuse a source of which no stay can be chosen, whatever its readings."""
    if preset == "paper":
        reasons = {f"los under {presets.MIN_DAYS:g} days or missing": engine.count("icustay")}
        chosen = len(presets.published_places(engine))
    else:
        presets.causal_stays(engine, source, stays=None, seed=0)
        outcomes = engine.rows("select subject_id, reason from stay")
        balance = stay_level(outcomes)["stays"]
        reasons, chosen = balance["left_out"], balance["used"]
    if not chosen:
        told = ", ".join(f"{reason} {count:,}" for reason, count in reasons.items())
        raise SourceError(f"{place(source.icustays)}: no stay is eligible under the {preset} preset ({told}); check it")
    yield f"{place(source.icustays)}: {chosen:,} stays can be chosen under the {preset} preset"


def check_readings(engine: Engine, source: Source, preset: str) -> Iterator[str]:
    """Read chartevents, whole where it is small; refuse rows that cannot be read and vitals that are never charted."""
    path = source.chartevents
    whole = path.stat().st_size <= READ_WHOLE_BYTES
    engine.table("vital_item", paper_only=preset == "paper")
    engine.table("check/reading_fault", reading=path, row_limit=WHOLE if whole else HEAD_ROWS)
    found = engine.rows("select * from reading_fault")[0]
    _refuse_empty(path, found["found"])
    refuse_unreadable(path, found, found["found"])
    numbers = {channel: found[f"{channel}_numbers"] for channel in CHANNELS}
    absent = [channel for channel, count in numbers.items() if whole and not count]
    if absent:
        raise SourceError(
            f"{place(path)}: none of its {found['found']:,} rows charts {', '.join(absent)} as a number; "
            "check that its itemids are those of MIMIC-IV"
        )
    extent = "rows, all read" if whole else "rows read so far, the others are checked while they are scanned"
    yield f"{place(path)}: {found['found']:,} {extent}; {sum(numbers.values()):,} chart a vital as a number"


def _refuse_empty(path: Path, rows: int) -> None:
    if not rows:
        raise SourceError(f"{place(path)}: has a header and no row; copy or download it again")


def refuse_unreadable(path: Path, found: Mapping[str, object], rows: int) -> None:
    """Raise SourceError naming the first column of which `found` counts unreadable rows."""
    for column, form in FORMS.items():
        count = found.get(f"{column}_unreadable")
        if count:
            raise SourceError(f"{place(path)}: {column}: {count:,} of {rows:,} rows are not {form}; export it again")

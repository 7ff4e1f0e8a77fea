"""Where the MIMIC-IV files are, which release they are, and whether they can be used: said before any long scan."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from cohort_sql.engine import Engine, header, place
from cohort_sql.errors import SourceError

__all__ = ["Source", "SourceError", "find_source", "open_views", "preflight"]

SUFFIXES = (".parquet", ".csv", ".csv.gz")
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
    "no_intime": "stays without intime; they are left out",
    "no_outtime": "stays without outtime; the causal preset leaves them out",
    "outtime_not_after_intime": "stays with outtime at or before intime; the causal preset leaves them out",
    "no_los": "stays without los; the paper preset leaves them out",
    "los_disagrees": "stays whose los is an hour or more off their times; causal uses the times, paper the los",
    "overlapping": "stays that begin before an earlier stay of the patient ends; readings go by their stay_id",
}
ABSENT = {
    "patients": "age is unknown, so nobody is left out as a minor",
    "admissions": "deathtime is unknown, so readings end at outtime",
}


@dataclass(frozen=True)
class Source:
    """The files of one source: `root` holds icu/ and hosp/; `release` is what the headers say."""

    root: Path
    icustays: Path
    chartevents: Path
    patients: Path | None
    admissions: Path | None
    release: str
    simulated: bool

    @property
    def tables(self) -> dict[str, Path]:
        """The files that are there, by table name."""
        named = {name: getattr(self, name) for name in COLUMNS}
        return {name: path for name, path in named.items() if path is not None}


def find_source(path: Path | str) -> Source:
    """Find the files under `path`: the root of a MIMIC-IV tree, a parent of it, or its icu/ folder.

    Each table may be .parquet, .csv or .csv.gz (taken in that order where several are there). Raises SourceError
    naming what is missing. Reads headers only; `preflight` looks inside.
    """
    path = Path(path)
    if not path.is_dir():
        raise SourceError(f"{path.name or path}: is not a directory; name the directory that holds icu/ and hosp/")
    icu = _icu_folder(path.resolve())
    # core/ held the patients before release 2.0.
    hospital = (icu.parent / "hosp", icu.parent / "core", icu)
    icustays, chartevents = _find("icustays", icu), _find("chartevents", icu)
    if icustays is None or chartevents is None:
        raise SourceError("icu/chartevents: not found as .parquet, .csv or .csv.gz; put the file of MIMIC-IV there")
    return Source(
        root=icu.parent,
        icustays=icustays,
        chartevents=chartevents,
        patients=_find("patients", *hospital),
        admissions=_find("admissions", *hospital),
        release=_release(header(chartevents)),
        simulated=(icu.parent / "SIMULATED.json").is_file(),
    )


def open_views(engine: Engine, source: Source) -> None:
    """Make every table of the source readable by its name, columns bound by name; absent tables read as empty."""
    for name, columns in COLUMNS.items():
        path = source.tables.get(name)
        if path is not None:
            engine.view(name, path, columns, header(path))
        else:
            engine.empty_view(name, columns)


def preflight(source: Source, *, preset: str) -> list[str]:
    """Check the source before anything starts and return what was found, one line each; raises SourceError.

    Headers and the small tables are read whole, and chartevents too where it is at most 64 MiB; the rest of a larger
    file is checked while it is scanned. Takes seconds. It does not say whether a stay is eligible.
    """
    facts = [f"source: {source.release}{', simulated' if source.simulated else ''}"]
    for name, path in source.tables.items():
        _check_columns(name, path, preset)
    with tempfile.TemporaryDirectory(prefix="icu-memory-") as scratch, Engine(Path(scratch)) as engine:
        open_views(engine, source)
        facts += _check_stays(engine, source, preset)
        facts += _check_people(engine, source, preset)
        facts += _check_readings(engine, source)
    return facts


def _icu_folder(path: Path) -> Path:
    """Return the folder with icustays: icu/ under `path`, `path` itself, or the one icu/ up to two levels below."""
    for folder in (path / "icu", path):
        if _find("icustays", folder):
            return folder
    below = [folder for depth in ("*/icu", "*/*/icu") for folder in path.glob(depth) if _find("icustays", folder)]
    if len(below) == 1:
        return below[0]
    if below:
        raise SourceError(f"{path.name}: {len(below)} directories below hold icu/icustays; name the one to use")
    raise SourceError(
        f"{path.name}: no icu/icustays as .parquet, .csv or .csv.gz; name the directory that holds icu/ and hosp/"
    )


def _find(table: str, *folders: Path) -> Path | None:
    candidates = (folder / f"{table}{suffix}" for folder in folders for suffix in SUFFIXES)
    return next((path for path in candidates if path.is_file()), None)


def _release(names: tuple[str, ...]) -> str:
    # caregiver_id came to chartevents with 2.2; the counts of rows tell the releases apart further (releases.csv).
    return "MIMIC-IV layout of 2.2 or later" if "caregiver_id" in names else "MIMIC-IV layout before 2.2"


def _check_columns(name: str, path: Path, preset: str) -> None:
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


def _check_stays(engine: Engine, source: Source, preset: str) -> Iterator[str]:
    path = source.icustays
    engine.table("icustay", reading=path)
    engine.table("check/stay_fault")
    found = engine.rows("select * from stay_fault")[0]
    _refuse_empty(path, found["stays"])
    refuse_unreadable(path, found, found["stays"])
    if found["repeated"]:
        raise SourceError(f"{place(path)}: {found['repeated']:,} rows repeat a stay_id; keep one row a stay")
    unusable = "no_los" if preset == "paper" else "no_outtime"
    for fault in ("no_intime", unusable):
        if found[fault] == found["stays"]:
            raise SourceError(f"{place(path)}: {fault[3:]} is empty in all {found[fault]:,} rows; export it again")
    yield f"{place(path)}: {found['stays']:,} stays of {found['patients']:,} patients"
    for fault, meaning in STAY_FAULTS.items():
        if found[fault]:
            yield f"{place(path)}: {found[fault]:,} {meaning}"


def _check_people(engine: Engine, source: Source, preset: str) -> Iterator[str]:
    if preset != "causal":
        return
    for name, absent in ABSENT.items():
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


def _check_readings(engine: Engine, source: Source) -> Iterator[str]:
    path = source.chartevents
    whole = path.stat().st_size <= READ_WHOLE_BYTES
    engine.table("check/reading_fault", reading=path, row_limit=WHOLE if whole else HEAD_ROWS)
    found = engine.rows("select * from reading_fault")[0]
    _refuse_empty(path, found["found"])
    refuse_unreadable(path, found, found["found"])
    extent = "rows, all read" if whole else "rows read so far; the others are checked while they are scanned"
    yield f"{place(path)}: {found['found']:,} {extent}; {found['vitals']:,} chart a vital"


def _refuse_empty(path: Path, rows: int) -> None:
    if not rows:
        raise SourceError(f"{place(path)}: has a header and no row; copy or download it again")


def refuse_unreadable(path: Path, found: Mapping[str, object], rows: int) -> None:
    """Raise SourceError naming the first column of which `found` counts unreadable rows."""
    for column, form in FORMS.items():
        count = found.get(f"{column}_unreadable")
        if count:
            raise SourceError(f"{place(path)}: {column}: {count:,} of {rows:,} rows are not {form}; export it again")

"""Where the MIMIC-IV files are, which release they are, and whether they can be used: said before any long scan."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from cohort_sql import checks
from cohort_sql.engine import Engine, header
from cohort_sql.errors import SourceError
from cohort_sql.suppressed import NOBODY, Suppressed

__all__ = ["Source", "SourceError", "Suppressed", "find_source", "preflight", "source_stays"]

Ids = npt.NDArray[np.int64]
SUFFIXES = (".parquet", ".csv", ".csv.gz")


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
        named = {name: getattr(self, name) for name in checks.COLUMNS}
        return {name: path for name, path in named.items() if path is not None}


def find_source(path: Path | str) -> Source:
    """Find the files under `path`: the root of a MIMIC-IV tree, a parent of it, or its icu/ folder.

    Each table may be .parquet, .csv or .csv.gz (taken in that order where several are there). Raises SourceError
    naming what is missing. Reads headers only; `preflight` looks inside.
    """
    path = Path(path)
    if not path.is_dir():
        raise SourceError(f"{path}: is not a directory; name the directory that holds icu/ and hosp/")
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


def preflight(source: Source, *, preset: str, suppressed: Suppressed = NOBODY) -> list[str]:
    """Check the source before anything starts and return what was found, one line each; raises SourceError.

    Headers and the small tables are read whole, and chartevents too where it is at most 64 MiB; the rest of a larger
    file is checked while it is scanned. Takes seconds. Suppressed stays and patients count nowhere.
    It does not say whether a stay has usable readings.
    """
    facts = [f"source: {source.release}{', simulated' if source.simulated else ''}"]
    for name, path in source.tables.items():
        checks.check_columns(name, path, preset)
    with tempfile.TemporaryDirectory(prefix="icu-memory-") as scratch, Engine(Path(scratch)) as engine:
        checks.open_views(engine, source, suppressed)
        for check in (checks.check_stays, checks.check_people, checks.check_eligible, checks.check_readings):
            facts += check(engine, source, preset)
    return facts


def source_stays(source: Source) -> tuple[Ids, Ids]:
    """Return the columns subject_id and stay_id (n,) of the source's stays, in file order.

    Raises SourceError where one of them cannot be read; looks at nothing else.
    """
    path = source.icustays
    checks.check_columns("icustays", path, "paper")
    with tempfile.TemporaryDirectory(prefix="icu-memory-") as scratch, Engine(Path(scratch)) as engine:
        checks.open_views(engine, source)
        engine.table("icustay", reading=path)
        rows = engine.rows("select subject_id, stay_id from icustay order by position")
    columns = {name: [row[name] for row in rows] for name in ("subject_id", "stay_id")}
    unreadable = {f"{name}_unreadable": column.count(None) for name, column in columns.items()}
    checks.refuse_unreadable(path, unreadable, len(rows))
    return np.array(columns["subject_id"], np.int64), np.array(columns["stay_id"], np.int64)


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

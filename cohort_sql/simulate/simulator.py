"""Writes a simulated MIMIC-IV source: invented patients, planted faults, and the truth beside them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import polars as pl

from cohort_sql.simulate import layout
from cohort_sql.simulate.charting import chart_stay
from cohort_sql.simulate.faults import chart_rows
from cohort_sql.simulate.items import item_dictionary
from cohort_sql.simulate.people import HOUR, LARGEST, Numbering, Stay, invent_person
from cohort_sql.simulate.physiology import latent_vitals
from cohort_sql.simulate.rates import FAULTS, Tally
from cohort_sql.simulate.tables import CsvTable, ParquetTable

MARKER = "SIMULATED.json"
CHUNK_ROWS = 150_000
_PROGRESS_EVERY = 20


class SimulateError(ValueError):
    """A simulated source that cannot be written as asked; one line for the user."""


def simulate(
    directory: str | Path, *, patients: int, seed: int, progress: Callable[[int, int], None] | None = None
) -> None:
    """Write a source of `patients` invented patients in the MIMIC-IV v3.1 layout into a new or empty `directory`.

    Writes icu/{icustays,chartevents,d_items}.csv.gz, hosp/{patients,admissions}.csv.gz,
    truth/{hours,stays,faults}.parquet and the marker SIMULATED.json. The same seed gives the same bytes, and patient i
    is the same whatever `patients` is. Memory holds one chunk of CHUNK_ROWS chart rows and the patient that overflows
    it. The tree appears at once, when it is complete. `progress` is called with (patients done, patients).

    Raises SimulateError for a number of patients, a seed or a directory that will not do, and when the disk is full.

    The numbers are plausible and fitted to no patient: they exercise software and support no claim about patients.
    """
    target = Path(directory).resolve()
    _check(target, patients, seed)
    partial = target.with_name(f".{target.name}.writing")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        partial.mkdir(parents=True)
        _write(partial, patients, seed, progress or (lambda done, total: None))
        partial.replace(target)
    except OSError as error:
        raise SimulateError(
            f"{target}: the simulated source cannot be written ({error.strerror}); free space or name another directory"
        ) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _check(target: Path, patients: int, seed: int) -> None:
    """Refuse what cannot be done before anything is written."""
    if not 1 <= patients <= LARGEST:
        raise SimulateError(f"--patients is {patients}: give a number from 1 to {LARGEST:,}")
    if seed < 0:
        raise SimulateError(f"--seed is {seed}: give 0 or a positive whole number")
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise SimulateError(f"{target}: exists and is not an empty directory; name a new one")


def _write(root: Path, patients: int, seed: int, progress: Callable[[int, int], None]) -> None:
    """Invent the patients one after another and write them chunk by chunk, the marker last."""
    tally = Tally()
    numbering = Numbering(seed)
    with _Tables(root, seed) as tables:
        for number in range(patients):
            rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(number,)))
            tables.add(_live(rng, tally, numbering, number))
            if (number + 1) % _PROGRESS_EVERY == 0 or number + 1 == patients:
                progress(number + 1, patients)
        tables.flush()
    marker = {
        "simulated": True,
        "notice": "Invented patients. No row describes a person, and no performance claim rests on these files.",
        "layout": "MIMIC-IV v3.1",
        "seed": seed,
        "patients": patients,
        "stays": tables.stays,
        "chartevents_rows": tables.rows,
        "largest_chunk_rows": tables.largest,
        "faults": [
            {
                **fault._asdict(),
                "eligible": tally.eligible()[fault.kind],
                "affected": tables.affected.get(fault.kind, 0),
            }
            for fault in FAULTS
        ],
    }
    (root / MARKER).write_text(json.dumps(marker, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _live(rng: np.random.Generator, tally: Tally, numbering: Numbering, number: int) -> layout.Life:
    """Invent patient `number` and live through every stay."""
    person = invent_person(rng, tally, numbering, number)
    return layout.Life(person, [_live_stay(rng, tally, stay) for stay in person.stays])


def _live_stay(rng: np.random.Generator, tally: Tally, stay: Stay) -> layout.LivedStay:
    """Draw the latent vitals of every hour that begins before outtime, chart them, strike single rows."""
    hours = -(-(stay.outtime - stay.intime) // HOUR)
    latent = latent_vitals(rng, hours, stay.intime / HOUR % 24.0, dying=stay.deathtime is not None)
    chart = chart_stay(rng, tally, stay, latent)
    rows = layout.row_frame(stay, chart_rows(rng, tally, chart), caregiver=int(rng.integers(1, 100_000)))
    return layout.LivedStay(stay, latent, chart, rows)


class _Tables(ExitStack):
    """The open files of one source and the chunk that waits to be written to them."""

    def __init__(self, root: Path, seed: int) -> None:
        super().__init__()
        self._seed, self._chunk = seed, 0
        self._lives: list[layout.Life] = []
        self._waiting = 0
        self.rows = self.stays = self.largest = 0
        self.affected: dict[str, int] = {}
        self._patients = self._csv(root / "hosp/patients.csv.gz", layout.PATIENTS)
        self._admissions = self._csv(root / "hosp/admissions.csv.gz", layout.ADMISSIONS)
        self._icustays = self._csv(root / "icu/icustays.csv.gz", layout.ICUSTAYS)
        self._chartevents = self._csv(root / "icu/chartevents.csv.gz", layout.CHARTEVENTS)
        self._csv(root / "icu/d_items.csv.gz", layout.D_ITEMS).append(item_dictionary())
        self._true_hours = self._parquet(root / "truth/hours.parquet", layout.TRUTH_HOURS)
        self._true_stays = self._parquet(root / "truth/stays.parquet", layout.TRUTH_STAYS)
        self._faults = self._parquet(root / "truth/faults.parquet", layout.TRUTH_FAULTS)

    def _csv(self, path: Path, header: tuple[str, ...]) -> CsvTable:
        table = CsvTable(path, header)
        self.callback(table.close)
        return table

    def _parquet(self, path: Path, schema: pl.Schema) -> ParquetTable:
        table = ParquetTable(path, schema)
        self.callback(table.close)
        return table

    def add(self, life: layout.Life) -> None:
        """Take one patient in, and write the chunk when it is full."""
        self._lives.append(life)
        self._waiting += sum(lived.rows.height for lived in life.stays)
        if self._waiting >= CHUNK_ROWS:
            self.flush()

    def flush(self) -> None:
        """Write the waiting patients, if any, and forget them."""
        if not self._lives:
            return
        rng = np.random.default_rng(np.random.SeedSequence(self._seed, spawn_key=(self._chunk, 0)))
        people = [life.person for life in self._lives]
        stays = [lived for life in self._lives for lived in life.stays]
        raw = pl.concat([lived.rows for lived in stays])
        self._patients.append(_shuffled(rng, layout.patient_frame(people)))
        self._admissions.append(_shuffled(rng, layout.admission_frame(people)))
        self._icustays.append(_shuffled(rng, layout.stay_frame(people)))
        self._chartevents.append(_quoted_last(_shuffled(rng, layout.chart_frame(raw))))
        self._true_hours.append(layout.true_hour_frame(stays))
        self._true_stays.append(layout.true_stay_frame(stays))
        faults = pl.concat([layout.row_fault_frame(raw), layout.stay_fault_frame(self._lives)])
        self._faults.append(faults)
        self._count(raw.height, len(stays), faults)
        self._lives, self._waiting = [], 0

    def _count(self, rows: int, stays: int, faults: pl.DataFrame) -> None:
        self._chunk += 1
        self.rows += rows
        self.stays += stays
        self.largest = max(self.largest, rows)
        for kind, count in faults.group_by("kind").len().iter_rows():
            self.affected[kind] = self.affected.get(kind, 0) + count


def _shuffled(rng: np.random.Generator, frame: pl.DataFrame) -> pl.DataFrame:
    """Return the rows in an arbitrary order: readers may not rely on any."""
    return frame[rng.permutation(frame.height)]


def _quoted_last(frame: pl.DataFrame) -> pl.DataFrame:
    """Move rows whose text needs quotes to the end of a chunk: a reader that sniffs the head of the file sees none."""
    quoted = pl.col("value").str.contains('[",\n\r]').fill_null(value=False)
    return pl.concat([frame.filter(~quoted), frame.filter(quoted)])

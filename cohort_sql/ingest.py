"""One pass over chartevents: the rows that chart a vital, typed, as a Parquet file that later builds read instead."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import duckdb

from cohort_sql.checks import refuse_unreadable
from cohort_sql.engine import Engine, dictionary_path, header, place, sql_text
from cohort_sql.errors import CohortError, SourceError
from cohort_sql.source import Source
from cohort_sql.suppressed import NOBODY, Suppressed, drop_others

_ENDS = 2**20
# Room that the ingested file and DuckDB's spill may need, as a share of the source file; a vital takes 12 bytes there.
_ROOM = 1.0


@dataclass(frozen=True)
class Ingested:
    """The ingested file, what it depends on, and how many rows the source file had, vital or not."""

    path: Path
    key: str
    source_rows: int


def ingest(
    engine: Engine,
    source: Source,
    scratch: Path,
    progress: Callable[[float], None] | None = None,
    suppressed: Suppressed = NOBODY,
) -> Ingested:
    """Return the ingested readings of `source`, made now or found in `scratch` from an earlier build.

    A source file whose name, size, time of change or first or last MiB differs is read again. Raises SourceError for
    rows that cannot be read (only those that chart a vital are looked at) and CohortError for a full disk.
    The file holds readings of patients and stays in `scratch` until that is removed; none of `suppressed`, whose rows
    the views of `engine` lack, and with those nothing that was ingested before stays there.
    """
    key = _key(source.chartevents, suppressed)
    folder = scratch / "ingested" / key
    if suppressed:
        drop_others(folder)
    kept = folder / "readings"
    if not kept.is_dir():
        _check_room(source.chartevents, scratch)
        _make(engine, source, folder, progress)
    return Ingested(kept, key, int(json.loads((folder / "source.json").read_text(encoding="utf-8"))["rows"]))


def _make(engine: Engine, source: Source, folder: Path, progress: Callable[[float], None] | None) -> None:
    """Scan the source file into a folder beside `folder`, check it, and rename: what is there is always whole."""
    making = folder.with_name(f"{folder.name}.making-{os.getpid()}")
    shutil.rmtree(making, ignore_errors=True)
    making.mkdir(parents=True)
    try:
        readings = making / "readings"
        rows = engine.export("charted", readings, reading=source.chartevents, progress=progress)
        if not any(readings.glob("*/*.parquet")):
            raise SourceError(
                f"{place(source.chartevents)}: none of its {rows:,} rows charts a vital; check its itemids"
            )
        engine.parquet("charted", readings)
        engine.table("check/charted_fault")
        refuse_unreadable(source.chartevents, engine.rows("select * from charted_fault")[0], rows)
        (making / "source.json").write_text(json.dumps({"rows": rows}), encoding="utf-8")
        shutil.rmtree(folder, ignore_errors=True)
        making.rename(folder)
    finally:
        shutil.rmtree(making, ignore_errors=True)


def _check_room(path: Path, scratch: Path) -> None:
    needed, free = int(path.stat().st_size * _ROOM), shutil.disk_usage(scratch).free
    if free < needed:
        raise CohortError(
            f"{place(path)}: the scratch directory has {free / 2**30:.1f} GiB free and may need "
            f"{needed / 2**30:.1f} GiB; free space or name another scratch directory"
        )


def _key(path: Path, suppressed: Suppressed) -> str:
    """Return a name for the ingested form of `path`, which changes with it, the query and who is left out."""
    status = path.stat()
    digest = hashlib.sha256(f"{path.name} {status.st_size} {status.st_mtime_ns} {duckdb.__version__}".encode())
    with path.open("rb") as content:
        digest.update(content.read(_ENDS))
        content.seek(max(0, status.st_size - _ENDS))
        digest.update(content.read())
    digest.update(" ".join(header(path)).encode())
    digest.update(suppressed.digest().encode())
    for name in ("functions", "charted"):
        digest.update(sql_text(name).encode())
    digest.update(dictionary_path("vitals").read_bytes())
    return digest.hexdigest()[:32]

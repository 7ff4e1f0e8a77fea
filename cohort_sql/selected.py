"""The selected readings of one preset and draw, kept in the scratch directory for the next build."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Literal

from cohort_sql import presets
from cohort_sql.engine import Engine, package_text
from cohort_sql.ingest import Ingested
from cohort_sql.presets import Readings, select_causal, select_paper
from cohort_sql.source import Source
from cohort_sql.suppressed import drop_others

Preset = Literal["paper", "causal"]
SELECT = {"paper": select_paper, "causal": select_causal}
_TABLES = ("outcome", "measured_hour")


def select(
    engine: Engine, source: Source, ingested: Ingested, scratch: Path, preset: Preset, stays: int | None, seed: int
) -> Readings:
    """Make the tables outcome and measured_hour by the rules of `preset`; return what became of the readings.

    They are read from `scratch` where an earlier build selected by the same rules from the same files, and kept there
    otherwise. They do not depend on the buckets, the split or what statistics are fitted on. Where
    ids are left out, other selections in `scratch` are removed.
    """
    folder = scratch / "selected" / _key(source, ingested, preset, stays, seed)
    if engine.left_out:
        drop_others(folder)
    if folder.is_dir():
        return _kept(engine, folder)
    readings = SELECT[preset](engine, source, stays, seed)
    _keep(engine, folder, readings)
    return readings


def _kept(engine: Engine, folder: Path) -> Readings:
    for name in _TABLES:
        engine.restore(name, folder / f"{name}.parquet")
    told = json.loads((folder / "readings.json").read_text(encoding="utf-8"))
    engine.queries |= told["queries"]
    return Readings(dict(told["by_reason"]), dict(told["repaired"]))


def _keep(engine: Engine, folder: Path, readings: Readings) -> None:
    """Write into a folder beside `folder` and rename: what is there is always whole."""
    making = folder.with_name(f"{folder.name}.making-{os.getpid()}")
    shutil.rmtree(making, ignore_errors=True)
    making.mkdir(parents=True)
    try:
        for name in _TABLES:
            engine.keep(name, making / f"{name}.parquet")
        # Pairs, because a reading that is used has no reason, and a key of JSON cannot be null.
        counts = {name: list(counted.items()) for name, counted in readings._asdict().items()}
        told = json.dumps({**counts, "queries": engine.queries})
        (making / "readings.json").write_text(told, encoding="utf-8")
        shutil.rmtree(folder, ignore_errors=True)
        making.rename(folder)
    finally:
        shutil.rmtree(making, ignore_errors=True)


def _key(source: Source, ingested: Ingested, preset: Preset, stays: int | None, seed: int) -> str:
    """Return a name that changes with the files, the draw and the rules; the seed counts only where stays are drawn."""
    draw = None if stays is None else [stays, seed]
    digest = hashlib.sha256(json.dumps([ingested.key, preset, draw]).encode())
    for name, path in sorted(source.tables.items()):
        if path != source.chartevents:
            digest.update(f"{name} {path.name} {path.stat().st_size} ".encode())
            with path.open("rb") as content:
                digest.update(hashlib.file_digest(content, "sha256").digest())
    digest.update(package_text().encode())
    digest.update(Path(presets.__file__).read_bytes())
    return digest.hexdigest()[:32]

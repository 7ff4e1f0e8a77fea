from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import meds
import polars as pl
import pyarrow.parquet as pq
import pytest

from flows.errors import FlowError
from flows.run.layout import RunLayout
from flows.run.registry import opened_site
from flows.settings import Settings
from flows.steps import cohort
from flows.steps.meds import EXPORTED, SPLITS, code, export_meds
from flows.steps.preflight import locate_source, opened_run

CHANNELS = ("hr", "sbp", "dbp", "rr", "spo2", "temp")


def built(source: Path, out: Path, **settings: object) -> RunLayout:
    chosen = Settings.model_validate({"buckets": 3, **settings})
    layout = RunLayout(out)
    with opened_run(layout, locate_source(str(source), layout, chosen), chosen):
        cohort.build(layout, chosen)
    return layout


@pytest.fixture(scope="module")
def layout(pristine: Path, tmp_path_factory: pytest.TempPathFactory) -> RunLayout:
    return built(pristine, tmp_path_factory.mktemp("meds") / "run")


@pytest.fixture(scope="module")
def exported(layout: RunLayout) -> Path:
    export_meds(layout.root, layout.data_root / "meds", Settings())
    return layout.data_root / "meds"


def test_every_file_passes_the_schema_of_the_standards_own_package(exported: Path) -> None:
    data = sorted((exported / meds.data_subdirectory).rglob("*.parquet"))
    assert data
    for file in data:
        meds.DataSchema.validate(pq.read_table(file, partitioning=None))
    meds.SubjectSplitSchema.validate(pq.read_table(exported / meds.subject_splits_filepath))
    meds.CodeMetadataSchema.validate(pq.read_table(exported / meds.code_metadata_filepath))
    described = json.loads((exported / meds.dataset_metadata_filepath).read_text())
    meds.DatasetMetadataSchema.validate(described)
    assert meds.__version__.startswith(described["meds_version"])
    assert set(SPLITS.values()) == {meds.train_split, meds.tuning_split, meds.held_out_split}


def test_a_subject_is_in_one_file_contiguous_and_in_order_of_time(exported: Path) -> None:
    seen: set[int] = set()
    for file in sorted((exported / "data").rglob("*.parquet")):
        rows = pl.read_parquet(file, hive_partitioning=False)
        subjects = rows["subject_id"].rle().struct.field("value").to_list()
        assert len(subjects) == len(set(subjects))
        assert not seen & set(subjects)
        seen |= set(subjects)
        assert rows.equals(rows.sort("subject_id", "time", maintain_order=True))
        split = pl.read_parquet(exported / meds.subject_splits_filepath)
        assert set(split.filter(pl.col("subject_id").is_in(subjects))["split"]) == {file.parent.name}


def test_measured_hours_are_exported_and_filled_ones_are_not(layout: RunLayout, exported: Path) -> None:
    """Counted hour by hour in plain Python from the cohort's own files."""
    stays = {row["stay_id"]: row for row in pl.read_parquet(layout.cohort / "stays.parquet").to_dicts()}
    expected: list[tuple[int, datetime, str, float]] = []
    filled = 0
    for file in sorted((layout.cohort / "hourly").rglob("*.parquet")):
        for row in pl.read_parquet(file, hive_partitioning=False).to_dicts():
            stay = stays[row["stay_id"]]
            seconds = 3600 * (row["hour"] + 1)
            at = datetime.fromtimestamp(stay["intime"].timestamp() + seconds)
            for channel in CHANNELS:
                if row[f"{channel}_measured"]:
                    expected.append((stay["subject_id"], at, code(channel), row[channel]))
                else:
                    filled += 1
    rows = pl.concat(pl.read_parquet(f, hive_partitioning=False) for f in (exported / "data").rglob("*.parquet"))
    found = sorted(rows.iter_rows())
    assert filled > 0
    assert [row[:3] for row in found] == [row[:3] for row in sorted(expected)]
    assert [row[3] for row in found] == pytest.approx([row[3] for row in sorted(expected)], rel=1e-6)


def test_every_code_of_the_data_is_described(exported: Path) -> None:
    rows = pl.concat(pl.read_parquet(f, hive_partitioning=False) for f in (exported / "data").rglob("*.parquet"))
    described = pl.read_parquet(exported / meds.code_metadata_filepath)
    assert set(rows["code"]) <= set(described["code"])
    assert described.filter(pl.col("code") == code("temp"))["description"].item().startswith("temperature, degC")


def test_the_directory_is_its_owners_alone_and_the_same_run_gives_the_same_bytes(
    layout: RunLayout, exported: Path, tmp_path: Path
) -> None:
    assert exported.stat().st_mode & 0o777 == 0o700
    export_meds(layout.root, tmp_path / "again", Settings())
    files = sorted(path.relative_to(exported) for path in exported.rglob("*") if path.is_file())
    assert files == sorted(p.relative_to(tmp_path / "again") for p in (tmp_path / "again").rglob("*") if p.is_file())
    for file in files:
        assert (exported / file).read_bytes() == (tmp_path / "again" / file).read_bytes()


def test_an_export_is_entered_in_the_inventory_of_the_site(source: Path, tmp_path: Path) -> None:
    run = built(source, tmp_path / "run", state=tmp_path / "state")
    export_meds(run.root, tmp_path / "meds", Settings())
    with opened_site(tmp_path / "state") as site:
        (known,) = site.runs()
        assert f"{EXPORTED}{tmp_path / 'meds'}" in site.inventory(known.run_id)


def test_an_export_is_refused_over_something_inside_the_run_and_without_a_cohort(
    layout: RunLayout, exported: Path, tmp_path: Path
) -> None:
    with pytest.raises(FlowError, match="is there already"):
        export_meds(layout.root, exported, Settings())
    with pytest.raises(FlowError, match="inside the run"):
        export_meds(layout.root, layout.root / "meds", Settings())
    with pytest.raises(FlowError, match="has no manifest"):
        export_meds(tmp_path, tmp_path / "meds", Settings())
    assert not (tmp_path / "meds").exists()

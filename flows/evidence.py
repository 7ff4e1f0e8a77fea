"""Rebuilds every figure that README, docs and report quote from the open recordings: `python -m flows.evidence`."""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from evaluation import synthetic_tasks
from evaluation.bootstrap_coverage import coverage_rows
from evaluation.campaigns import CAMPAIGNS
from flows.errors import FlowError
from flows.progress import shown_progress
from flows.run.layout import RunLayout
from flows.run.manifest import read_manifest
from flows.run.publish import write_json
from flows.settings import Settings
from flows.steps.audit import audit
from flows.steps.campaign import campaign
from flows.study import run_study

SOURCES = ("mimic_demo_iv", "eicu_demo")
PRESETS = ("paper", "causal")
PARTS = ("studies", "audit", "campaigns", "coverage")
SCHEMA_VERSION = 1


def main(argv: Sequence[str] | None = None) -> int:
    """Write cohort.json, retention.json, audit.json, campaign_*.json and coverage.json; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m flows.evidence", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("evidence"))
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help=f"holds {' and '.join(SOURCES)}")
    parser.add_argument("--trials", type=int, default=300, help="trials of each regime of the audit")
    parser.add_argument("--only", choices=PARTS, action="append", help="rebuild this part alone; may be repeated")
    chosen = parser.parse_args(argv)
    try:
        with shown_progress(quiet=False):
            _rebuild(chosen.only or PARTS, chosen.out.absolute(), chosen.data, chosen.trials)
    except ValueError as refusal:
        sys.stderr.write(f"error: {refusal}\n")
        return 1
    return 0


def _rebuild(parts: Sequence[str], out: Path, data: Path, trials: int) -> None:
    absent = [name for name in SOURCES if not (data / name).is_dir()]
    if absent and {"studies", "audit"} & set(parts):
        raise FlowError(
            f"{data}: holds no {' and no '.join(absent)}; name the directory of the open recordings: --data"
        )
    makers: dict[str, Callable[[], None]] = {
        "studies": lambda: _rebuild_studies(out, data),
        "audit": lambda: _rebuild_audit(out, data, trials),
        "campaigns": lambda: _rebuild_campaigns(out),
        "coverage": lambda: _rebuild_coverage(out),
    }
    for part in parts:
        makers[part]()


def _rebuild_studies(out: Path, data: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="icu-memory-evidence-") as place:
        runs = {}
        for source in SOURCES:
            for preset in PRESETS:
                runs[source, preset] = Path(place) / f"{source}-{preset}"
                run_study(str(data / source), runs[source, preset], Settings.model_validate({"preset": preset}))
        cohorts = [{"source": source, **cohort_figures(run)} for (source, _), run in runs.items()]
        write_json(out / "cohort.json", {**provenance(), "rows": cohorts})
        write_json(
            out / "retention.json", {**provenance(), "studies": [study_figures(*key, run) for key, run in runs.items()]}
        )


def _rebuild_audit(out: Path, data: Path, trials: int) -> None:
    settings = Settings.model_validate({"preset": "paper", "audit_trials": trials})
    table = audit(str(data / SOURCES[0]), out / "audit.json", ["all"], settings)
    write_json(out / "audit.json", {**provenance(), **table})


def _rebuild_coverage(out: Path) -> None:
    """How often the bootstrap's intervals hold the truth, and the synthetic tasks: neither needs data."""
    write_json(out / "coverage.json", {**provenance(), "rows": coverage_rows(), "tasks": synthetic_tasks.rows()})


def _rebuild_campaigns(out: Path) -> None:
    for name in CAMPAIGNS:
        file = out / f"campaign_{name}.json"
        table = campaign(name, file, "evidence", Settings.model_validate({}))
        write_json(file, {**provenance(), **table})


def cohort_figures(run: Path) -> dict[str, Any]:
    """Counts, lengths and event hours of one run's cohort, with its attrition and coverage; aggregates only."""
    layout = RunLayout(run)
    manifest = read_manifest(layout)
    if manifest is None:
        raise FlowError(f"{run}: is not a run")
    hourly = pl.scan_parquet(layout.cohort / "hourly" / "**" / "*.parquet")
    stays = hourly.group_by("stay_id").agg(hours=pl.len(), events=pl.col("event").mean()).collect()
    return {
        "settings": {name: manifest.settings[name] for name in ("preset", "stays", "seed")},
        "queries": dict(manifest.queries),
        "stays": stays.height,
        "tokens": int(stays["hours"].sum()),
        "median_hours": stays["hours"].median(),
        "longest_hours": stays["hours"].max(),
        "mean_event_share": stays.sort("stay_id")["events"].mean(),
        **{name: _read(layout.cohort / f"{name}.json") for name in ("attrition", "coverage")},
    }


def study_figures(source: str, preset: str, run: Path) -> dict[str, Any]:
    """The result tables of one run, row by row."""
    tables = {file.stem: _read(file)["rows"] for file in sorted((run / "results").glob("*.json"))}
    manifest = read_manifest(RunLayout(run))
    return {"source": source, "preset": preset, "settings": manifest and dict(manifest.settings), **tables}


def provenance() -> dict[str, Any]:
    """The commit of the checkout and whether it had uncommitted changes outside evidence/."""
    return {"schema_version": SCHEMA_VERSION, "commit": _git("rev-parse", "HEAD"), "changed": bool(_changed())}


def _changed() -> list[str]:
    return [
        line for line in _git("status", "--porcelain", "--untracked-files=no").splitlines() if "evidence/" not in line
    ]


def _git(*arguments: str) -> str:
    git = shutil.which("git")
    if git is None:
        return "unknown"
    told = subprocess.run([git, *arguments], capture_output=True, text=True, check=False)  # noqa: S603 (fixed arguments)
    return told.stdout.rstrip("\n") or "unknown" if arguments[0] == "rev-parse" else told.stdout


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


if __name__ == "__main__":
    sys.exit(main())

"""The report step: published figures of the run in, one self-contained HTML file out."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from evaluation import published
from flows.errors import FlowError
from flows.run.layout import RunLayout
from flows.run.locks import run_lock
from flows.run.manifest import recorded_step, step_is_done, write_manifest
from flows.run.publish import write_atomic
from flows.settings import Settings, operational_names
from flows.steps.campaign import campaign_rows
from flows.steps.deletions import deletion_rows
from flows.steps.opened import opened_manifest
from flows.steps.site import refuse_suppressed
from reports.html import render_report

TITLE = "Online memories for hourly ICU vitals"

NOT_CLAIMED = (
    "No clinical use: retention says what a memory keeps, not what helps a patient.",
    "The support set's published advantage is over the policy that keeps the most redundant hours; "
    "keeping the least dense hours is the baseline to beat.",
    "Most hours of slowly charted vitals are filled in, and filling makes copies: see the measured rows.",
    "A held-out vital is hidden from the selectors, but vitals that correlate with it are not.",
)

STATEMENTS = {
    "vla": "ridge with integer ledger: bit-identical to a build from the retained hours only, in any order",
    "vla unit": "bit-identical to the deterministic replay of the retained hours",
    "wards": "retained-key refit at the same C, within the certified bound of each state",
    "nc01": "bit-identical to the deterministic replay of the retained hours, deleted ones as holes on the clock",
}
_SIZES = ("stays", "patients", "tokens")
_DECLARED = ("wards", "declared_hours", "cap")


def render(layout: RunLayout, settings: Settings) -> None:
    """Render RUN/report.html and record it, unless it is there already."""
    if step_is_done(layout, opened_manifest(layout), "report"):
        return
    with recorded_step(layout, "report", [layout.report]):
        write_report(layout, settings)


def write_report(
    layout: RunLayout,
    settings: Settings,
    audit: Sequence[Mapping[str, Any]] = (),
    campaigns: Sequence[Mapping[str, Any]] = (),
) -> None:
    """Render RUN/report.html; the same run, `show_records`, audit and campaign rows give the same bytes."""
    extra = {"audit": audit, "campaigns": campaigns}
    write_atomic(layout.report, render_report(report_input(layout, settings) | extra).encode())


def report_input(layout: RunLayout, settings: Settings) -> dict[str, Any]:
    """What the report is made from: aggregates, settings, versions and digests, no path and no time of day."""
    manifest = opened_manifest(layout)
    attrition = _read(layout.cohort / "attrition.json")
    return {
        "title": TITLE,
        "simulated": manifest.source["simulated"],
        "source": {
            "release": manifest.source["release"],
            "observed_rows": attrition["rows"]["source"],
            "expected_rows": attrition["expected"] and attrition["expected"]["rows"]["expected"],
        },
        "settings": {name: value for name, value in manifest.settings.items() if name not in operational_names()},
        "versions": manifest.versions,
        "queries": manifest.queries,
        "attrition": {level: attrition[level] for level in ("rows", "stays", "patients")},
        "coverage": _read(layout.cohort / "coverage.json"),
        "retention": _rows(layout.results / "retention.json"),
        "contrasts": _rows(layout.results / "contrasts.json"),
        "published": published_rows(),
        **{name: _optional(layout.results / f"{name}.json") for name in ("curves", "recall", "tasks")},
        "streaming": _streaming(layout),
        "memories": _other_memories(layout, settings),
        "deletions": deletion_rows(layout),
        "not_claimed": NOT_CLAIMED,
        "show_records": settings.show_records,
    }


def published_rows() -> list[dict[str, Any]]:
    """The published figures in the shape that the report takes."""
    shared = {"cohort": published.COHORT, "protocol": "fixed-context"}
    values = [{**asdict(row), "value": row.retention, **shared} for row in published.RETENTION_PUBLISHED]
    differences = [
        {**asdict(row), "policy": row.left, "value": row.mean, **shared} for row in published.CONTRASTS_PUBLISHED
    ]
    return values + differences


def _streamed(layout: RunLayout) -> dict[str, dict[str, Any]]:
    """The streaming rows by memory; empty for a study without memories."""
    path = layout.results / "streaming.json"
    return {row["memory"]: row for row in _rows(path)} if path.exists() else {}


def _other_memories(layout: RunLayout, settings: Settings) -> list[dict[str, Any]]:
    """What the memories other than a stay's own gate did, with the statement that a deletion from each may make."""
    found = []
    for name, row in _streamed(layout).items():
        statement = STATEMENTS.get("vla unit" if name == "vla" and settings.vla_gain == "unit" else name)
        if statement is not None:
            facts = {key: value for key, value in row.items() if key not in (*_SIZES, *_DECLARED, "memory")}
            counts = {key: value for key, value in facts.items() if isinstance(value, int)}
            worst = {key: value for key, value in facts.items() if isinstance(value, float)}
            sizes = {key: row[key] for key in _SIZES}
            found.append({"name": name, "deletion": statement, "counts": counts, "worst": worst, **sizes})
    return found


def _streaming(layout: RunLayout) -> dict[str, Any] | None:
    """What the support-vector memories did, in the report's words; None for a study without them."""
    row = _streamed(layout).get("svdd")
    if row is None:
        return None
    paths = {name.removeprefix("path_"): count for name, count in row.items() if name.startswith("path_")}
    return {
        **{name: row[name] for name in ("stays", "patients", "tokens")},
        "retained": row["active"],
        "paths": paths,
        "score_bound": row["bound"],
        "capacity": f"C = 1 / (nu n0) with n0 = {row['declared_hours']} declared hours",
    }


def _optional(path: Path) -> list[dict[str, Any]]:
    """The rows of a table that a study may lack."""
    return _rows(path) if path.exists() else []


def _rows(path: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = _read(path)["rows"]
    return rows


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def render_again(
    run: Path,
    *,
    show_records: bool,
    audit: Path | None = None,
    campaigns: Sequence[Path] = (),
    state: Path | None = None,
) -> Path:
    """Render the report of a finished study again, with or without small counts, a deletion audit and campaigns.

    ``audit`` is a file that `icu-memory audit` wrote, ``campaigns`` are files that `icu-memory campaign` wrote,
    ``state`` is the site's state directory.  Returns the report's path.
    """
    rows, claims = _audit_rows(audit) if audit is not None else [], campaign_rows(campaigns)
    layout = RunLayout(run)
    opened_manifest(layout)
    with run_lock(layout):
        refuse_suppressed(layout, state)
        manifest = opened_manifest(layout)  # a deletion may have replaced the run before the lock was ours
        unfinished = [step for step in ("cohort", "evaluate") if not step_is_done(layout, manifest, step)]
        if unfinished:
            told = " and ".join(unfinished)
            raise FlowError(f"run {run}: {told} not finished; run the same `icu-memory study` again")
        rendered = replace(manifest, settings={**manifest.settings, "show_records": show_records})
        write_manifest(layout, rendered.without_steps(["report"]))
        with recorded_step(layout, "report", [layout.report]):
            write_report(layout, Settings.model_validate(dict(rendered.settings)), rows, claims)
    return layout.report


def _audit_rows(file: Path) -> list[dict[str, Any]]:
    try:
        return _rows(file)
    except (OSError, ValueError, KeyError, TypeError):
        raise FlowError(f"{file}: is not a table that `icu-memory audit` wrote; give its --out file") from None

"""What a command asks the state directory before it works: pending deletions first, and no suppressed patient."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from cohort_sql.source import Source, Suppressed, source_stays
from flows.errors import CannotDecide, FlowError
from flows.run.layout import RunLayout
from flows.run.manifest import read_manifest
from flows.run.registry import opened_site
from flows.run.stores import store_kinds
from flows.run.suppression import Suppression
from flows.settings import Settings
from reports.receipts.annex import destroy_expired
from reports.receipts.errors import ReceiptError


def settled(settings: Settings) -> Settings:
    """Complete the deletions that an interrupted command has left past their intent, before any other work.

    Annexes whose date has come are destroyed, so that nobody has to remember it.  Returns the settings with the state
    directory as an absolute path; without one nothing happens.  Every command calls this first.  Raises FlowError where
    the state directory cannot be used or another process is deleting.
    """
    if settings.state is None:
        return settings
    state = settings.state.expanduser().absolute()
    if state.exists():
        with opened_site(state) as site:
            if set(site.requests().values()) - {"done"}:
                from flows.steps.forget import complete_pending  # noqa: PLC0415 (a command that opens runs itself)

                complete_pending(site)
        with suppress(ReceiptError):  # a damaged annex is told where it is read; it stops no study
            destroy_expired(state / "annexes", datetime.now(UTC).date())
    return settings.model_copy(update={"state": state})


def suppressed_of(source: Source, settings: Settings) -> Suppressed:
    """The stays and patients of a source that the site has suppressed; nobody where no state directory is named."""
    suppression = _suppression(settings.state)
    if not suppression:
        return Suppressed()
    subjects, stays = source_stays(source)
    return Suppressed(
        stays=frozenset(stays[suppression.matches(subjects, stays)].tolist()),
        subjects=frozenset(subjects[suppression.subjects(subjects)].tolist()),
    )


def refuse_suppressed(layout: RunLayout, state: Path | None = None) -> None:
    """Raise FlowError for a run that holds a suppressed patient, such as a restored backup, naming what cures it.

    Asked are the state directory ``state`` and the one that the run was made with.  Raises CannotDecide where that one
    is gone.  Looks at the stays of the cohort and of the retained hours; a deletion's verification looks everywhere.
    """
    manifest = read_manifest(layout)
    own = manifest.settings.get("state") if manifest is not None else None
    sites = {path.expanduser().absolute() for path in (state, Path(own) if own else None) if path is not None}
    for site in sorted(sites):
        if not site.is_dir():
            if site == (state and state.expanduser().absolute()):
                continue
            raise CannotDecide(
                f"run {layout.root}: was made with the state directory {site}, which is gone, so its suppression list "
                "cannot be asked; put it back"
            )
        suppression = _suppression(site)
        if suppression and (count := suppressed_stays(layout, suppression)):
            told = "a suppressed patient" if count <= 10 else f"{count} stays of suppressed patients"
            raise FlowError(
                f"run {layout.root}: still holds {told}; remove what it holds with "
                f"`icu-memory delete {layout.root} --suppressed --state-dir {site}`"
            )


def suppressed_stays(layout: RunLayout, suppression: Suppression) -> int:
    """How many stays of a run are suppressed, by its tables of stays and of retained hours."""
    try:
        stays = _columns(layout.cohort / "stays.parquet", "subject_id", "stay_id")
        retained = [_columns(file, "stay_id") for file in sorted(layout.retained.glob("*.parquet"))]
    except (OSError, pl.exceptions.PolarsError):
        raise FlowError(f"run {layout.root}: a table of stays cannot be read; run the same study again") from None
    hit = set(stays["stay_id"].to_numpy()[suppression.matches(*(stays[name].to_numpy() for name in stays.columns))])
    listed = pl.concat([table["stay_id"] for table in retained]).unique().to_numpy() if retained else np.array([])
    return len(hit | set(listed[suppression.stays(listed)]))


@contextmanager
def registered(layout: RunLayout, source: Mapping[str, Any], settings: Settings) -> Iterator[None]:
    """Register a run before anything of a patient is written into it; undone when the block ends without a manifest."""
    if settings.state is None:
        yield
        return
    with opened_site(settings.state) as site:
        known = {run.path for run in site.runs()}
        run_id = site.register_run(layout, run_identity(source))
        site.set_inventory(run_id, site.inventory(run_id) | store_kinds(settings.memories))
    try:
        yield
    except BaseException:
        if not layout.manifest.exists() and layout.root not in known:
            with opened_site(settings.state) as site:
                site.drop_run(run_id)
        raise


def _suppression(state: Path | None) -> Suppression | None:
    """The suppression list of a site, None where there is no site or nothing in it."""
    if state is None or not state.exists():
        return None
    with opened_site(state) as site:
        return site.suppression() or None


def _columns(file: Path, *names: str) -> pl.DataFrame:
    if not file.exists():
        return pl.DataFrame(schema=dict.fromkeys(names, pl.Int64))
    return pl.read_parquet(file, columns=list(names), hive_partitioning=False).select(names)


def run_identity(source: Mapping[str, Any]) -> str:
    """SHA-256 (hex) of what identifies a source, wherever it lies."""
    content = {name: value for name, value in source.items() if name != "path"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

"""Where everything of one run lies."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class RunLayout:
    """The paths of one run directory; creates nothing."""

    root: Path

    @property
    def manifest(self) -> Path:
        """The only file of a run that holds times and host facts."""
        return self.root / "manifest.json"

    @property
    def lock(self) -> Path:
        """The file that one study at a time holds locked."""
        return self.root / ".lock"

    @property
    def cohort(self) -> Path:
        """Stays, hourly tokens and attrition."""
        return self.root / "cohort"

    @property
    def retained(self) -> Path:
        """Kept hours per stay as Parquet, one file a bucket."""
        return self.root / "retained"

    @property
    def memories(self) -> Path:
        """Memory states as safetensors: one file a bucket, one a ward, and the features of the matrix memories."""
        return self.root / "memories"

    @property
    def counts(self) -> Path:
        """Tables of one row or more per stay, from which all results are computed again after a deletion."""
        return self.root / "counts"

    @property
    def results(self) -> Path:
        """The long tables of figures as JSON."""
        return self.root / "results"

    @property
    def report(self) -> Path:
        """The self-contained report."""
        return self.root / "report.html"

    @property
    def receipts(self) -> Path:
        """Receipts of the deletions that this run went through, one file each."""
        return self.root / "receipts"

    @property
    def state_manifest(self) -> Path:
        """Digests of the run's files and a nonce, after a deletion; what a receipt is about."""
        return self.root / "state.json"

    @property
    def generations(self) -> Path:
        """Unpublished work of all steps; gone when a study is finished."""
        return self.root / ".generation"

    def generation(self, step: str) -> Path:
        """Unpublished work of one step."""
        return self.generations / step

    @property
    def data_root(self) -> Path:
        """The protected directory in which runs, their simulated source and the orchestrator's home lie."""
        return self.root.parent


def bucket_name(bucket: int) -> str:
    """The directory or file stem of one bucket, as in ``bucket=07``."""
    return f"bucket={bucket:02d}"


def ward_name(ward: int) -> str:
    """The file stem of one ward, as in ``ward=03``."""
    return f"ward={ward:02d}"

"""Deletion with everything computed again: the run has the bytes of a study of a source without the patient."""

from __future__ import annotations

import csv
import gzip
import io
import shutil
from pathlib import Path

import pytest

from flows.errors import FlowError
from flows.evidence_forget import SMALL, asked, small_site, small_study, subjects_of_run, tree_digest
from flows.run.layout import RunLayout
from flows.settings import Settings
from flows.steps.forget.work import Options, delete
from flows.steps.verify import trust, verify

AGAIN = Options(restandardise=True)
PARTS = ("cohort", "memories", "retained", "counts", "results")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunLayout, Settings]:
    return small_site(tmp_path_factory.mktemp("again"), 8)


@pytest.fixture
def own(made: tuple[RunLayout, Settings], tmp_path: Path) -> tuple[RunLayout, Settings]:
    """The same run and site in a place of their own; the source stays where it is."""
    layout, settings = made
    shutil.copytree(layout.root, tmp_path / "run")
    assert settings.state is not None
    shutil.copytree(settings.state, tmp_path / "state")
    return RunLayout(tmp_path / "run"), settings.model_copy(update={"state": tmp_path / "state"})


def without(source: Path, folder: Path, subject: int) -> Path:
    """A copy of an invented source whose tables never held a patient."""
    shutil.copytree(source, folder)
    for table in sorted(folder.glob("*/*.csv.gz")):
        with gzip.open(table, "rt", newline="") as lines:
            rows = list(csv.DictReader(lines))
        if "subject_id" not in rows[0]:
            continue
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, rows[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(row for row in rows if row["subject_id"] != str(subject))
        table.write_bytes(gzip.compress(text.getvalue().encode(), mtime=0))
    return folder


def test_the_run_has_the_bytes_of_a_study_of_a_source_without_the_patient(own, made, tmp_path: Path) -> None:
    layout, settings = own
    subject = subjects_of_run(layout)[2]
    before = tree_digest(layout.cohort / "hourly")
    done = delete(layout.root, [asked(tmp_path, "request-again", subject)], settings, AGAIN)
    assert done.fresh
    source = without(made[0].root.parent / "source", tmp_path / "filtered", subject)
    fresh = small_study(source, tmp_path / "fresh", Settings.model_validate(SMALL))
    for part in PARTS:
        assert tree_digest(layout.root / part) == tree_digest(fresh.root / part), part
    assert tree_digest(layout.cohort / "hourly") != before
    (bundle,) = verify(layout.root, trust(None, settings.state, None), settings.state).bundles
    assert "cohort statistics" not in bundle.facts.not_covered
    assert {fact.reference for fact in bundle.facts.memories} == {"a build that never saw the tokens"}
    assert {action.method for action in bundle.facts.actions} == {"computed again", "rendered again", "file removed"}


def test_a_source_that_is_gone_or_another_one_is_refused_and_nothing_is_touched(own, tmp_path: Path) -> None:
    layout, settings = own
    request = asked(tmp_path, "request-gone", subjects_of_run(layout)[0])
    text = layout.manifest.read_text()
    for place, told in (
        ("nowhere", "not at"),
        (str(without(_source(text), tmp_path / "other", subjects_of_run(layout)[1])), "not the one"),
    ):
        layout.manifest.write_text(text.replace(str(_source(text)), place))
        before = tree_digest(layout.root)
        with pytest.raises(FlowError, match=f"--restandardise.*{told}") as refused:
            delete(layout.root, [request], settings, AGAIN)
        assert "\n" not in str(refused.value)
        assert tree_digest(layout.root) == before
        assert not (layout.root.parent / ".run.next").exists()


def _source(manifest: str) -> Path:
    return Path(manifest.split('"path": "')[1].split('"', maxsplit=1)[0])

"""What the annex, the receipt and the recovery say of several runs, lost runs and generations removed by hand."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from flows.evidence_forget import asked, small_site, subjects_of_run
from flows.run.layout import RunLayout
from flows.run.registry import opened_site
from flows.settings import Settings
from flows.steps.forget import generation, work
from flows.steps.forget.generation import next_of
from flows.steps.forget.work import Options, delete
from flows.steps.site import settled
from flows.steps.verify import trust, verify

Made = tuple[RunLayout, Settings]


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return small_site(tmp_path_factory.mktemp("annex"), 8)


@pytest.fixture
def own(kept: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "prefect"))
    layout, settings = kept
    assert settings.state is not None
    shutil.copytree(layout.root, tmp_path / "run")
    shutil.copytree(settings.state, tmp_path / "state")
    return RunLayout(tmp_path / "run"), settings.model_copy(update={"state": tmp_path / "state"})


def test_every_run_has_its_section_and_a_lost_run_is_told(own: Made, kept: Made, tmp_path: Path) -> None:
    layout, settings = own
    state = settings.state or tmp_path
    moved = tmp_path / "moved"
    shutil.copytree(layout.root, moved)
    with opened_site(state) as site:
        site.register_run(RunLayout(moved), "another")
        site.register_run(RunLayout(tmp_path / "away"), "lost")
        former = [run.run_id for run in site.runs() if run.path == kept[0].root]
        for run_id in former:
            site.drop_run(run_id)
    request = asked(tmp_path, "request-annex", subjects_of_run(layout)[0])
    done = delete(layout.root, [request], settings, Options(all_runs=True))
    assert done.lost == (tmp_path / "away",)
    details = json.loads((state / "annexes" / "request-annex.json").read_text())["details"]
    assert len(details) == 2
    assert all(0 < float(part["largest_change_of_frozen_statistics_in_sd"]) < 1 for part in details.values())
    for run in (layout.root, moved):
        assert "lost runs" in verify(run, trust(None, state, None), state).last.facts.not_covered
    with opened_site(state) as site:
        assert tmp_path / "away" in {run.path for run in site.runs()}


def test_a_prepared_generation_removed_by_hand_is_made_again(
    own: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout, settings = own
    subject = subjects_of_run(layout)[0]

    def crash(*_: object) -> str:
        raise KeyboardInterrupt

    request = asked(tmp_path, "request-gone", subject)
    with monkeypatch.context() as patched:
        patched.setattr(work, "finish", crash)
        with pytest.raises(KeyboardInterrupt):
            delete(layout.root, [request], settings)
    assert subject in subjects_of_run(layout)
    shutil.rmtree(next_of(layout).root)
    settled(settings)
    assert subject not in subjects_of_run(layout)
    assert verify(layout.root, trust(None, settings.state, None), settings.state).last.facts.outcome == "deleted"


def test_a_ward_that_was_fed_again_says_so(own: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layout, settings = own
    monkeypatch.setattr(generation, "TOLERANCE", -1.0)  # no certificate is good enough
    delete(layout.root, [asked(tmp_path, "request-again", subjects_of_run(layout)[0])], settings)
    facts = verify(layout.root, trust(None, settings.state, None), settings.state).last.facts
    (ward,) = (memory for memory in facts.memories if memory.kind == "wards")
    assert (ward.arithmetic_path, ward.reference) == ("replay", "replay of the retained tokens")
    assert {action.store: action.method for action in facts.actions}["wards"] == "replay"

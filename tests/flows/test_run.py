from __future__ import annotations

import json
import multiprocessing
from pathlib import Path

import pytest

from flows.errors import FlowError
from flows.run.inventory import inventory
from flows.run.layout import RunLayout, bucket_name
from flows.run.locks import run_lock
from flows.run.manifest import Manifest, read_manifest, recorded_step, step_is_done, write_manifest
from flows.run.publish import publish_directory, write_atomic, write_json, written_whole


@pytest.fixture
def layout(tmp_path: Path) -> RunLayout:
    made = RunLayout(tmp_path / "run")
    made.root.mkdir()
    write_manifest(made, Manifest(settings={}, source={}, versions={}))
    return made


def fill(directory: Path, **files: str) -> Path:
    directory.mkdir(parents=True)
    for name, text in files.items():
        (directory / name).write_text(text, encoding="utf-8")
    return directory


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def write_half(path: Path) -> None:
    with written_whole(path) as beside:
        beside.write_bytes(b"half")
        raise RuntimeError


def test_a_failed_write_leaves_the_former_file_and_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_atomic(path, b"former")
    with pytest.raises(RuntimeError):
        write_half(path)
    assert path.read_bytes() == b"former"
    assert names(tmp_path) == ["file"]


def test_json_is_written_sorted_and_refuses_what_json_has_not(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"b": 1, "a": 2})
    assert list(json.loads((tmp_path / "a.json").read_text())) == ["a", "b"]
    with pytest.raises(ValueError, match="JSON"):
        write_json(tmp_path / "a.json", {"a": float("nan")})


def test_a_published_directory_replaces_the_former_one_whole(tmp_path: Path) -> None:
    target = fill(tmp_path / "part", old="1")
    publish_directory(fill(tmp_path / "generation", new="2"), target)
    assert names(target) == ["new"]
    assert names(tmp_path) == ["part"]


def test_a_directory_left_aside_by_a_kill_does_not_hinder_the_next_publication(tmp_path: Path) -> None:
    fill(tmp_path / "generation.former", stale="0")
    publish_directory(fill(tmp_path / "generation", new="2"), tmp_path / "part")
    assert names(tmp_path) == ["part"]


def test_a_step_is_done_only_while_its_files_are_there_unchanged(layout: RunLayout) -> None:
    with recorded_step(layout, "cohort", [layout.cohort]) as facts:
        fill(layout.cohort, a="12345")
        facts["stays"] = 3
    manifest = read_manifest(layout)
    assert manifest is not None
    assert manifest.steps["cohort"]["stays"] == 3
    assert step_is_done(layout, manifest, "cohort")
    (layout.cohort / "a").write_text("54321", encoding="utf-8")
    assert step_is_done(layout, manifest, "cohort")
    assert not step_is_done(layout, manifest, "cohort", thorough=True)
    (layout.cohort / "a").write_text("1234", encoding="utf-8")
    assert not step_is_done(layout, manifest, "cohort")
    (layout.cohort / "a").unlink()
    assert not step_is_done(layout, manifest, "cohort")


def test_a_step_that_fails_is_not_recorded(layout: RunLayout) -> None:
    with pytest.raises(RuntimeError), recorded_step(layout, "cohort", [layout.cohort]):
        raise RuntimeError
    manifest = read_manifest(layout)
    assert manifest is not None
    assert manifest.steps == {}


def test_query_digests_have_one_home(layout: RunLayout) -> None:
    with recorded_step(layout, "cohort", []) as facts:
        facts["queries"] = {"a.sql": "00"}
    manifest = read_manifest(layout)
    assert manifest is not None
    assert manifest.queries == {"a.sql": "00"}
    assert "queries" not in manifest.steps["cohort"]


@pytest.mark.parametrize("text", ["", "[]", "{}", "{"])
def test_a_file_that_is_no_manifest_is_refused_by_name(layout: RunLayout, text: str) -> None:
    layout.manifest.write_text(text, encoding="utf-8")
    with pytest.raises(FlowError, match=r"manifest\.json"):
        read_manifest(layout)


def hold(root: Path, holding: multiprocessing.synchronize.Event, release: multiprocessing.synchronize.Event) -> None:
    with run_lock(RunLayout(root)):
        holding.set()
        release.wait(30)


def test_a_run_in_use_is_refused_and_free_again_when_its_process_is_killed(layout: RunLayout) -> None:
    context = multiprocessing.get_context("fork")
    holding, release = context.Event(), context.Event()
    process = context.Process(target=hold, args=(layout.root, holding, release))
    process.start()
    assert holding.wait(30)
    with pytest.raises(FlowError, match="another command"), run_lock(layout):
        pass
    process.kill()
    process.join()
    with run_lock(layout):
        pass


def test_the_inventory_lists_published_files_only_and_sees_a_changed_byte(layout: RunLayout) -> None:
    fill(layout.cohort, a="1")
    fill(layout.generation("cohort"), b="2")
    before = inventory(layout)
    assert [entry.name for entry in before] == ["cohort/a"]
    (layout.cohort / "a").write_text("3", encoding="utf-8")
    assert inventory(layout) != before


def test_bucket_names_sort_as_numbers_do() -> None:
    assert sorted(bucket_name(number) for number in (10, 9, 2)) == [bucket_name(number) for number in (2, 9, 10)]

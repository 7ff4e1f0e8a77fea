"""Every kind of bad input is one line, exit 1, before any server starts and with nothing left on the disk."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from cohort_sql.source import find_source
from flows.cli import main
from flows.run.layout import RunLayout
from flows.run.manifest import Manifest, package_versions, read_manifest, write_manifest
from flows.settings import load_settings
from flows.steps.preflight import opened_run, source_facts

CANARY = "482916037755"
Spoil = Callable[[Path], None]


def charted(source: Path) -> Path:
    return source / "icu" / "chartevents.csv.gz"


def listed(source: Path) -> Path:
    return source / "icu" / "icustays.csv.gz"


Rows = list[list[str]]
Change = Callable[[Rows], Rows]

CALM = {"220045": "80", "220050": "120", "220179": "120", "225309": "120",
        "220051": "70", "220180": "70", "225310": "70",
        "220210": "15", "224690": "15", "220277": "97", "223761": "98.6", "223762": "37"}  # fmt: skip


def edit(file: Path, change: Change) -> None:
    rows = list(csv.reader(io.StringIO(gzip.decompress(file.read_bytes()).decode(), newline="")))
    out = io.StringIO(newline="")
    csv.writer(out, lineterminator="\n").writerows(change(rows))
    file.write_bytes(gzip.compress(out.getvalue().encode(), mtime=0))


def with_cell(name: str, value: str) -> Change:
    """Put a value into one column of the first row that charts a heart rate."""

    def change(rows: Rows) -> Rows:
        row = next(row for row in rows[1:] if row[rows[0].index("itemid")] == "220045")
        row[rows[0].index(name)] = value
        return rows

    return change


def without_column(name: str) -> Change:
    def change(rows: Rows) -> Rows:
        at = rows[0].index(name)
        return [row[:at] + row[at + 1 :] for row in rows]

    return change


def everywhere(name: str, value: str) -> Change:
    def change(rows: Rows) -> Rows:
        at = rows[0].index(name)
        return rows[:1] + [[*row[:at], value, *row[at + 1 :]] for row in rows[1:]]

    return change


def calm(rows: Rows) -> Rows:
    """Every vital of every hour between its thresholds."""
    item, value = rows[0].index("itemid"), rows[0].index("valuenum")
    for row in rows[1:]:
        row[value] = CALM.get(row[item], row[value])
    return rows


SPOILS: dict[str, tuple[Spoil, str]] = {
    "missing file": (lambda s: charted(s).unlink(), "chartevents"),
    "missing column": (lambda s: edit(charted(s), without_column("itemid")), "itemid"),
    "empty file": (lambda s: charted(s).write_bytes(b""), "chartevents"),
    "header only": (lambda s: edit(charted(s), lambda lines: lines[:1]), "chartevents"),
    "truncated gzip": (lambda s: charted(s).write_bytes(charted(s).read_bytes()[:-2000]), "chartevents"),
    "text in valuenum": (lambda s: edit(charted(s), with_cell("valuenum", f"x{CANARY}")), "valuenum"),
    "bad timestamp": (lambda s: edit(charted(s), with_cell("charttime", f"x{CANARY}")), "charttime"),
    "no eligible stay": (lambda s: edit(listed(s), everywhere("los", "0.5")), "stay"),
    "no event hour": (lambda s: edit(charted(s), calm), "event hour"),
}


def one_error_line(captured: str) -> str:
    lines = captured.splitlines()
    errors = [line for line in lines if line.startswith("error: ")]
    assert len(errors) == 1, captured
    assert "Traceback" not in captured
    return errors[0]


@pytest.mark.parametrize("kind", SPOILS)
def test_a_spoilt_source_is_one_line_and_leaves_nothing(
    kind: str, source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spoil, named = SPOILS[kind]
    spoil(source)
    run = tmp_path / "new" / "deep" / "run"
    code = main(["study", str(source), "--out", str(run), "--preset", "paper"])
    captured = capsys.readouterr()
    line = one_error_line(captured.err)
    assert code == 1
    assert named in line
    assert CANARY not in line
    assert captured.out == ""
    assert not (tmp_path / "new").exists()


def test_a_source_that_is_not_there_names_the_path(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["study", str(tmp_path / "nowhere"), "--out", str(tmp_path / "run")]) == 1
    assert "nowhere" in one_error_line(capsys.readouterr().err)


def begun(run: Path, source: Path, **flags: object) -> Manifest:
    """A run whose manifest says that a study of this source was begun and has its cohort."""
    settings = load_settings(flags=flags).model_dump(mode="json")
    run.mkdir()
    manifest = Manifest(settings, source_facts(find_source(source)), package_versions(), steps={"cohort": {}})
    write_manifest(RunLayout(run), manifest)
    return manifest


def test_a_run_begun_with_other_versions_is_refused_until_it_is_finished(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = begun(tmp_path / "run", source, preset="paper")
    older = replace(manifest, versions={**manifest.versions, "numpy": "0.1"})
    write_manifest(RunLayout(tmp_path / "run"), older)
    assert main(["study", str(source), "--out", str(tmp_path / "run"), "--preset", "paper"]) == 1
    assert "other versions of numpy" in one_error_line(capsys.readouterr().err)


def test_a_run_in_which_nothing_is_finished_takes_other_settings(source: Path, tmp_path: Path) -> None:
    manifest = begun(tmp_path / "run", source, seed=4)
    layout = RunLayout(tmp_path / "run")
    write_manifest(layout, replace(manifest, steps={}))
    layout.generation("evaluate").mkdir(parents=True)
    with opened_run(layout, find_source(source), load_settings(flags={"seed": 5})) as pending:
        assert pending
    found = read_manifest(layout)
    assert found is not None
    assert found.settings["seed"] == 5
    assert not layout.generation("evaluate").exists()


def test_a_run_with_other_settings_is_refused_naming_each(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    begun(tmp_path / "run", source, seed=4, preset="paper")
    before = (tmp_path / "run" / "manifest.json").read_bytes()
    assert main(["study", str(source), "--out", str(tmp_path / "run"), "--preset", "paper", "--seed", "5"]) == 1
    line = one_error_line(capsys.readouterr().err)
    assert "seed 4 there, 5 asked" in line
    assert "--out" in line
    assert (tmp_path / "run" / "manifest.json").read_bytes() == before


def test_a_run_of_another_source_is_refused(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    begun(tmp_path / "run", source)
    edit(listed(source), lambda lines: lines[:-1])
    assert main(["study", str(source), "--out", str(tmp_path / "run")]) == 1
    assert "another source" in one_error_line(capsys.readouterr().err)


def test_a_directory_that_holds_something_else_is_refused_untouched(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter").write_text("text", encoding="utf-8")
    assert main(["study", str(source), "--out", str(tmp_path / "thesis")]) == 1
    assert "--out" in one_error_line(capsys.readouterr().err)
    assert [path.name for path in (tmp_path / "thesis").iterdir()] == ["chapter"]


def test_an_out_that_is_a_file_is_refused(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run").write_text("text", encoding="utf-8")
    assert main(["study", str(source), "--out", str(tmp_path / "run")]) == 1
    assert "is a file" in one_error_line(capsys.readouterr().err)


@pytest.mark.parametrize(
    "arguments",
    [["study"], ["study", "x", "--seed", "zero"], ["study", "x", "--preset", "best"], ["bogus"], ["study", "--bogus"]],
)
def test_what_cannot_be_understood_is_exit_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Traceback" not in captured.err
    assert list(tmp_path.iterdir()) == []


def test_the_source_defaults_to_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MIMIC_DATA_DIR", str(tmp_path / "second"))
    main(["study", "--out", str(tmp_path / "run")])
    assert "second" in one_error_line(capsys.readouterr().err)
    monkeypatch.setenv("MIMICIV_PATH", str(tmp_path / "first"))
    main(["study", "--out", str(tmp_path / "run")])
    assert "first" in one_error_line(capsys.readouterr().err)


def test_errors_can_be_read_by_machines_of_the_shell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--json and --quiet change neither the error line nor the exit code, before or behind the command."""
    for arguments in (["--json", "--quiet", "doctor", str(tmp_path / "x")], ["doctor", str(tmp_path / "x"), "--json"]):
        assert main(arguments) == 1
        findings = json.loads(capsys.readouterr().out)
        assert any(one["name"] == "source" and one["state"] == "missing" for one in findings)


def test_the_version_and_help_come_without_loading_the_product(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert re.match(r"icu-memory \d", capsys.readouterr().out)
    for name in ("study", "simulate", "doctor", "report"):
        assert main([name, "--help"]) == 0
        assert "--json" in capsys.readouterr().out

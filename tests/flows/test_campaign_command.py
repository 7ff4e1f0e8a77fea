"""`icu-memory campaign` writes a table of claims, and the report takes it beside the audit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flows.cli import main
from flows.errors import FlowError
from flows.steps.campaign import campaign_rows


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("campaign") / "new" / "spectral.json"
    assert main(["campaign", "spectral", "--out", str(out), "--quiet"]) == 0
    return out


def test_the_file_names_campaign_size_seed_versions_and_a_verdict_for_every_claim(table: Path) -> None:
    document = json.loads(table.read_text())
    assert document["campaign"] == "spectral"
    assert document["settings"] == {"size": "ci", "seed": 0}
    assert document["schema_version"] == 1
    assert "torch" in document["versions"]
    assert {row["status"] for row in document["rows"]} <= {"reproduced", "not reproduced", "refuted", "not attempted"}
    assert document["raw"]


def test_stdout_is_the_document_with_json_and_verdicts_without(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "out.json")
    assert main(["campaign", "spectral", "--out", out, "--json", "--quiet"]) == 0
    assert json.loads(capsys.readouterr().out)["campaign"] == "spectral"
    assert main(["campaign", "spectral", "--out", out, "--quiet"]) == 0
    assert "reproduced: score error: 0.370471601, published 0.370472" in capsys.readouterr().out


def test_another_campaign_is_a_usage_error(tmp_path: Path) -> None:
    assert main(["campaign", "svdd", "--out", str(tmp_path / "x.json")]) == 2


def test_rows_for_the_report_say_where_they_come_from(table: Path) -> None:
    rows = campaign_rows([table, table])
    assert len(rows) == 2 * len(json.loads(table.read_text())["rows"])
    assert {(row["campaign"], row["size"]) for row in rows} == {("spectral", "ci")}
    assert campaign_rows([]) == []


@pytest.mark.parametrize("content", ["", "[]", '{"rows": []}', '{"campaign": "nc01", "settings": {}, "rows": [1]}'])
def test_a_file_that_is_no_campaign_is_refused(tmp_path: Path, content: str) -> None:
    file = tmp_path / "file.json"
    file.write_text(content)
    with pytest.raises(FlowError, match="is not a table that `icu-memory campaign` wrote"):
        campaign_rows([file])
    with pytest.raises(FlowError):
        campaign_rows([tmp_path / "absent.json"])

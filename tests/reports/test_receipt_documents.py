"""The documents about receipts say what the code does."""

from __future__ import annotations

import json
import re
from pathlib import Path

from reports.receipts.canonical import dumps
from reports.receipts.statement import ReceiptFacts, read_statement

ROOT = Path(__file__).parents[2]


def test_the_worked_example_is_a_statement_that_the_code_reads():
    text = (ROOT / "docs" / "receipts.md").read_text()
    (example,) = re.findall(r"```json\n(.*?)```", text, re.DOTALL)
    assert isinstance(read_statement(dumps(json.loads(example)), "example"), ReceiptFacts)


def test_every_row_of_the_threat_model_names_tests_that_exist():
    sources = "\n".join(file.read_text() for file in (ROOT / "tests").rglob("test_*.py"))
    rows = [line for line in (ROOT / "docs" / "threat-model.md").read_text().splitlines() if line.startswith("| ")][2:]
    assert len(rows) == 10
    for row in rows:
        named = re.findall(r"`(test_\w+)`", row)
        files = re.findall(r"`(tests/\S+?\.py)`", row)
        assert named or files, row
        assert all(f"def {name}(" in sources for name in named), row
        assert all((ROOT / file).exists() for file in files), row

"""Turn a study into one self-contained HTML file: same input, same bytes."""

from __future__ import annotations

import base64
import functools
import hashlib
import re
from collections.abc import Mapping
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from reports.html import (
    campaigns,
    curves,
    figures,
    forests,
    honesty,
    opening,
    provenance,
    recall,
    shared,
    tables,
    words,
)
from reports.html.model import ReportError, Study, read_study
from reports.html.numbers import plain
from reports.html.suppression import suppress

_TEMPLATES = PackageLoader("reports.html", "templates")
_DIGEST = re.compile(r"[0-9a-f]{40,64}")


def render_report(study: Mapping[str, Any]) -> str:
    """Render the report of one study.

    study: the mapping documented by `reports.html.model.Study`; it is not changed. Returns the text of the file. It
    names no time of day and no absolute path, loads nothing (its content security policy forbids it) and runs no
    script. Counts of 1 to 10 are withheld with what would reveal them unless `show_records` is set.
    Raises ReportError, one line, when the input cannot be shown. It does not write a file and does not judge results.
    """
    record = suppress(read_study(study))
    environment = _environment()
    style = _style(environment)
    page = environment.get_template("report.html.j2").render(
        study=record,
        title=plain(record.title),
        queries=_queries(record),
        style=style,
        style_hash=_policy_hash(style),
        protocols=shared.protocols(record),
        plain=plain,
        words=words,
        curves=curves,
        honesty=honesty,
        recall=recall,
        shared=shared,
        opening=opening,
        figures=figures,
        forests=forests,
        tables=tables,
        campaigns=campaigns,
        provenance=provenance,
    )
    return "\n".join(line.rstrip() for line in page.split("\n") if line.strip()) + "\n"


@functools.cache
def _environment() -> Environment:
    """One for the process: a deletion renders twice, and compiling the templates takes longer than filling them."""
    return Environment(
        loader=_TEMPLATES,
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _style(environment: Environment) -> str:
    """The style sheet exactly as it stands on the page: its hash is the only thing the policy lets in."""
    text, _, _ = _TEMPLATES.get_source(environment, "report.css")
    return "\n".join(line.rstrip() for line in text.split("\n") if line.strip())


def _policy_hash(style: str) -> str:
    return base64.b64encode(hashlib.sha256(f"\n{style}\n".encode()).digest()).decode()


def _queries(study: Study) -> list[tuple[str, str]]:
    """Query files with their digests; anything that is not a digest is refused rather than printed."""
    for digest in study.queries.values():
        if not _DIGEST.fullmatch(digest):
            raise ReportError(
                "report input: queries: a value is not a lower-case hexadecimal digest; "
                "render the report from the run's manifest"
            )
    return [(plain(name), digest) for name, digest in sorted(study.queries.items())]

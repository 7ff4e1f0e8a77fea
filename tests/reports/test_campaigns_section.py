"""The campaigns stand beside the audit: a line a claim, published values with their own look, verdicts counted."""

from __future__ import annotations

import html
import re

import pytest
import sample

from reports.html import ReportError, render_report

ROWS = [
    {
        "campaign": "vla",
        "size": "evidence",
        "quantity": "largest Jacobian norm",
        "conditions": "untrained model",
        "ours": 1.2377087,
        "published": 1.0,
        "source": "a paper",
        "target": "at most 1",
        "status": "refuted",
        "reason": "the norm is 1 only where a = k <b>",
    },
    {
        "campaign": "vla",
        "size": "evidence",
        "quantity": "crossing",
        "conditions": "page",
        "ours": None,
        "published": 43_000,
        "source": "a page",
        "target": None,
        "status": "not attempted",
        "reason": "needs a GPU",
    },
]


def section(page: str) -> str:
    found = re.search(r'<section id="campaigns".*?</section>', page, re.DOTALL)
    assert found is not None
    return found.group(0)


def text(markup: str) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", markup)).split())


def test_each_claim_has_ours_published_target_and_verdict() -> None:
    part = section(render_report(sample.study() | {"campaigns": ROWS}))
    words = text(part)
    assert "VLA, variational linear attention size evidence; refuted 1, not attempted 1" in words
    assert "1.237 708 7 1 at most 1 refuted" in words
    assert "43,000" in words
    assert "Not attempted here" in words
    assert "<b>" not in part.split("largest Jacobian norm")[1].split("</tr>")[0].replace("<b>VLA", "")
    assert part.count('class="published"') + part.count("published") >= 2


def test_without_campaigns_there_is_no_section_and_no_link() -> None:
    page = render_report(sample.study())
    assert 'href="#campaigns"' not in page
    assert 'id="campaigns"' not in page


def test_an_unknown_verdict_is_refused() -> None:
    with pytest.raises(ReportError, match="campaigns"):
        render_report(sample.study() | {"campaigns": [ROWS[0] | {"status": "proved"}]})

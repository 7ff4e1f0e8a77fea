"""A campaign's verdicts follow from their targets, and every row of every campaign is a flat record."""

from __future__ import annotations

import json

import pytest

from evaluation.campaigns import CAMPAIGNS, run_campaign
from evaluation.campaigns.table import at_most, between, claimed, equals, judged, not_attempted
from evaluation.errors import EvaluationError
from evaluation.published import VLA_PUBLISHED

FIELDS = {"quantity", "conditions", "ours", "published", "source", "target", "status", "reason"}


@pytest.mark.parametrize(
    ("ours", "target", "status"),
    [
        (1.0, at_most(1.0), "reproduced"),
        (1.1, at_most(1.0), "not reproduced"),
        (float("nan"), at_most(1.0), "not reproduced"),
        (float("inf"), between(0, float("inf")), "not reproduced"),
        (2.4, equals(2.0, 0.5), "reproduced"),
        (2.6, equals(2.0, 0.5), "not reproduced"),
    ],
)
def test_a_claim_is_reproduced_only_where_a_finite_number_meets_its_target(ours, target, status) -> None:
    assert judged("q", "c", ours, target).status == status


def test_a_general_statement_is_refuted_by_one_measurement() -> None:
    claim, published = at_most(1.0), VLA_PUBLISHED["jacobian"]
    assert claimed("q", "c", 1.2, claim, published, "r").status == "refuted"
    assert claimed("q", "c", 1.0, claim, published, "r").status == "reproduced"
    assert not_attempted("q", published, "r").ours is None


@pytest.fixture(scope="module", params=sorted(CAMPAIGNS))
def document(request):
    return run_campaign(request.param)


def test_every_campaign_gives_flat_rows_that_json_can_hold(document) -> None:
    again = json.loads(json.dumps(document, allow_nan=False))
    assert {"schema_version", "campaign", "settings", "rows", "raw"} == set(again)
    assert again["rows"]
    for row in again["rows"]:
        assert set(row) == FIELDS
        assert all(value is None or isinstance(value, int | float | str) for value in row.values())
        assert (row["published"] is None) == (row["source"] is None)
        assert row["status"] != "not attempted" or (row["ours"] is None and row["reason"])


def test_an_unknown_campaign_or_size_is_refused_in_one_line() -> None:
    for name, size in (("svdd", "ci"), ("vla", "huge")):
        with pytest.raises(EvaluationError, match="choose one of") as refused:
            run_campaign(name, size)
        assert "\n" not in str(refused.value)

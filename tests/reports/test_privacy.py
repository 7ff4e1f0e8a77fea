"""Nothing that identifies a patient or a machine reaches the page, whichever field it came in."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import sample

from reports.html import ReportError, render_report

CANARY = 918_273_645_546


def planted(study: dict[str, Any]) -> dict[str, Any]:
    """Add the canary as an extra field to every record, and to every free text."""
    extra = {"subject_id": CANARY, "stay_id": str(CANARY), "hadm_id": CANARY}
    for name in ("retention", "contrasts", "coverage", "published", "audit"):
        study[name] = [row | extra for row in study[name]]
    study["source"] |= extra | {"path": f"/data/{CANARY}", "release": f"MIMIC-IV {CANARY}"}
    study |= extra | {"title": f"Stay {CANARY} in /srv/data/secret", "not_claimed": [f"patient {CANARY}"]}
    study["settings"] |= {
        "source": f"/srv/data/secret/{CANARY}",
        "patient": CANARY,
        "list": [CANARY],
        "nested": {"id": str(CANARY)},
    }
    study["settings"][f"name {CANARY}"] = True
    study["versions"] |= {"local": f"1.0+{CANARY}"}
    study["attrition"]["stays"]["left_out"] = {f"stay {CANARY} is very long": 72}
    study["events"] = {"hr": f"as in {CANARY}"}
    for row in study["retention"]:
        row["reason"] = f"stay {CANARY}"
    study["streaming"]["capacity"] = f"{CANARY} hours"
    return study


@pytest.mark.parametrize("show_records", [False, True])
def test_an_identifier_in_any_field_is_in_no_part_of_the_page(show_records: bool) -> None:
    page = render_report(planted(sample.study(show_records=show_records)))
    assert str(CANARY) not in page
    assert str(CANARY) not in re.sub(r"[,\s\u00a0]", "", page)
    assert "secret" not in page
    assert "/srv" not in page


def test_an_identifier_as_channel_policy_or_protocol_is_not_printed() -> None:
    study = sample.study()
    for row in study["retention"]:
        row |= {"channel": f"c{CANARY}", "policy": f"p{CANARY}", "protocol": f"q{CANARY}"}
    for row in study["contrasts"]:
        row |= {"channel": f"c{CANARY}", "right": f"p{CANARY}", "protocol": f"q{CANARY}"}
    assert str(CANARY) not in render_report(study)


def test_page_holds_no_time_of_day_and_no_absolute_path(page: str) -> None:
    body = re.sub(r"<style>.*?</style>", "", page, flags=re.DOTALL)
    assert re.search(r"\b\d{1,2}:\d{2}(:\d{2})?\b", body) is None
    assert re.search(r"\b20\d\d-\d\d-\d\d\b", body) is None
    assert re.search(r"(?<![<\w.])/(?:home|root|tmp|work|data|var|usr)\b", body) is None


def test_a_digest_that_is_not_one_is_refused_without_being_repeated() -> None:
    study = sample.study()
    study["queries"]["stays.sql"] = f"patient-{CANARY}"
    with pytest.raises(ReportError) as refusal:
        render_report(study)
    assert str(CANARY) not in str(refusal.value)


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (lambda s: s.pop("title"), "title"),
        (lambda s: s["retention"][3].update(stays=f"{CANARY}x"), "retention.3.stays"),
        (lambda s: s["coverage"][0].pop("hours"), "coverage.0.hours"),
        (lambda s: s["contrasts"][1].update(unit=str(CANARY)), "contrasts.1.unit"),
        (lambda s: s["attrition"]["stays"].update(used=67), "attrition.stays"),
        (lambda s: s["attrition"].pop("rows"), "attrition"),
    ],
)
def test_a_wrong_input_is_refused_in_one_line_with_its_place_and_without_its_value(change, place: str) -> None:
    study = json.loads(json.dumps(sample.study()))
    change(study)
    with pytest.raises(ReportError) as refusal:
        render_report(study)
    message = str(refusal.value)
    assert place in message
    assert "\n" not in message
    assert str(CANARY) not in message
    assert refusal.value.__cause__ is None

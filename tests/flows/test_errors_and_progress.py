from __future__ import annotations

import errno
import io

import pytest

from evaluation.errors import EvaluationError
from flows.errors import FlowError, PartlyDone, StepFailed, TransientFault, data_free
from flows.progress import Progress, describe

CANARY = "123456789012"


def raised(failure: Exception) -> Exception:
    try:
        raise failure
    except Exception as caught:
        return caught


@pytest.mark.parametrize(
    "failure", [KeyError(CANARY), ValueError(f"bad {CANARY}"), RuntimeError(CANARY), TypeError(CANARY)]
)
def test_an_unknown_fault_tells_its_kind_and_place_and_never_its_text(failure: Exception) -> None:
    told = data_free(raised(failure), "evaluate bucket 3")
    assert isinstance(told, StepFailed)
    assert CANARY not in str(told)
    assert "evaluate bucket 3" in str(told)
    assert "test_errors_and_progress.py:" in str(told)
    assert told.__cause__ is None
    assert told.__context__ is None


def test_a_refusal_keeps_its_text_and_its_exit_code() -> None:
    assert str(data_free(raised(EvaluationError("one line")), "x")) == "one line"
    assert data_free(raised(PartlyDone("half")), "x").exit_code == 4


@pytest.mark.parametrize(
    ("number", "kind"), [(errno.EBUSY, TransientFault), (errno.EIO, TransientFault), (errno.ENOSPC, StepFailed)]
)
def test_only_faults_that_may_pass_are_worth_another_try(number: int, kind: type[FlowError]) -> None:
    told = data_free(raised(OSError(number, "x", f"/data/{CANARY}")), "cohort")
    assert type(told) is kind
    assert CANARY not in str(told)


class Ticks:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_progress_elsewhere_than_on_a_terminal_is_a_line_every_few_seconds() -> None:
    ticks, out = Ticks(), io.StringIO()
    progress = Progress(stream=out, clock=ticks)
    for done in range(21):
        ticks.now = float(done)
        progress.update("evaluate", done, 20, "buckets")
    lines = out.getvalue().splitlines()
    assert len(lines) == 4
    assert lines[0] == "evaluate: 5 of 20 buckets (25 %), 1 buckets/s, 15 s left"


def test_quiet_progress_says_nothing() -> None:
    out = io.StringIO()
    Progress(quiet=True, stream=out).update("evaluate", 1, 2, "buckets")
    assert out.getvalue() == ""


def test_progress_tells_a_rate_and_the_time_left() -> None:
    assert describe("cohort", 25, 100, "%", 10.0) == "cohort: 25 %, 2.5 %/s, 30 s left"
    assert describe("stream", 0, 100, "hours", 0.0) == "stream: 0 of 100 hours (0 %)"
    assert describe("stream", 10, 10_000, "hours", 10.0).endswith("2.8 h left")

"""Runs studies in one process, each with one step that fails with a recognisable text; prints exit codes as JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from flows.cli import main
from flows.steps import cohort, evaluate, recall, report, stream, summarise, wards

FAULT = "stay 482916000123 has hr 81.7319462"
STEPS = {
    "cohort": (cohort, "build"),
    "evaluate": (evaluate, "measure_bucket"),
    "stream": (stream, "stream_bucket"),
    "summarise": (summarise, "summarise"),
    "report": (report, "render"),
}
# One after the other in one run, in the order in which a study takes them: what comes before is finished by then.
LATER = {
    "prepare": (stream, "prepare"),
    "wards": (wards, "make_ward"),
    "recall": (recall, "recall_bucket"),
}


def fail(*arguments: Any) -> None:
    raise KeyError(FAULT)


def fail_in_one_bucket(original: Any) -> Any:
    """The first bucket asked for fails, the others do their work."""
    failing: list[int] = []

    def work(layout: Any, settings: Any, bucket: int) -> Any:
        failing.append(bucket)
        return fail() if bucket == failing[0] else original(layout, settings, bucket)

    return work


def study(source: str, run: Path) -> int:
    return main(["study", source, "--out", str(run), "--quick"])


source, out = sys.argv[1], Path(sys.argv[2])
codes = {}
for name, (module, function) in {**STEPS, **LATER}.items():
    original = getattr(module, function)
    setattr(module, function, fail)
    codes[name] = study(source, out / ("later" if name in LATER else name))
    setattr(module, function, original)
original = stream.stream_bucket
stream.stream_bucket = fail_in_one_bucket(original)
codes["one bucket"] = study(source, out / "stream")
stream.stream_bucket = original
codes["again"] = study(source, out / "stream")
print(json.dumps(codes))

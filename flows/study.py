"""The main job from a name of a source to a report: what the `study` command and its callers run."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from flows.device import checked_device
from flows.environment import SERVER_VARIABLE, prepare_environment
from flows.run.layout import RunLayout
from flows.settings import Settings
from flows.steps.preflight import locate_source, opened_run
from flows.steps.site import refuse_suppressed, settled
from flows.temporary_server import end_server_with_this_process


@dataclass(frozen=True)
class StudyOutcome:
    """What a study ends with; ``fresh`` is False where everything was there already."""

    report: Path
    run: Path
    fresh: bool


def run_study(source_name: str, out: Path, settings: Settings) -> StudyOutcome:
    """Run a study, or what an earlier and interrupted call left to do, and return where the report is.

    Everything that can be refused is refused before the orchestrator starts.  Raises FlowError and the refusals of the
    other rooms, each one line.
    """
    settings = settled(settings)
    checked_device(settings.device)
    layout = RunLayout(out.expanduser().absolute())
    source = locate_source(source_name, layout, settings)
    with opened_run(layout, source, settings) as pending:
        if pending:
            prepare_environment(layout.data_root)
            if not os.environ.get(SERVER_VARIABLE):
                end_server_with_this_process()
            from flows import prefect_flows  # noqa: PLC0415 (seconds to import, and its environment must be set first)

            prefect_flows.run_study(layout, settings)
            refuse_suppressed(layout, settings.state)  # suppressed while the study ran
        shutil.rmtree(layout.generations, ignore_errors=True)
    return StudyOutcome(layout.report, layout.root, fresh=pending)

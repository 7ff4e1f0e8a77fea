"""The orchestrator's environment, set before it is imported."""

from __future__ import annotations

import os
from pathlib import Path

HOME_VARIABLE = "PREFECT_HOME"
SERVER_VARIABLE = "PREFECT_API_URL"

_DEFAULTS = {
    "DASK_LOGGING__DISTRIBUTED": "critical",
    "DO_NOT_TRACK": "1",
    "PREFECT_CLOUD_ENABLE_ORCHESTRATION_TELEMETRY": "false",
    "PREFECT_LOGGING_LEVEL": "CRITICAL",
    # What other libraries log in the temporary server while it ends, such as a cancelled database call.
    "PREFECT_LOGGING_ROOT_LEVEL": "CRITICAL",
    "PREFECT_LOGGING_SERVER_LEVEL": "CRITICAL",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    # The first start migrates a new database: tens of seconds on a busy machine.
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "180",
    "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
}


def prepare_environment(data_root: Path) -> None:
    """Keep the orchestrator quiet, offline and inside the protected data root; what is set already is honoured.

    Has an effect only before the orchestrator's first import in this process.
    """
    for name, value in {HOME_VARIABLE: str(orchestrator_home(data_root)), **_DEFAULTS}.items():
        os.environ.setdefault(name, value)


def orchestrator_home(data_root: Path) -> Path:
    """$PREFECT_HOME, else `.prefect` in the data root."""
    return Path(os.environ.get(HOME_VARIABLE) or data_root / ".prefect")

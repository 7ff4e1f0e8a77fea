"""The command line as processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Command:
    """The command line in processes of its own, with a home for the orchestrator that outlives one test."""

    home: Path

    def environment(self, **more: str) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PREFECT_", "ICU_MEMORY_"))}
        return {**kept, "PREFECT_HOME": str(self.home), "OMP_NUM_THREADS": "1", "COLUMNS": "200", **more}

    def start(self, *arguments: str | Path, **environment: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "flows.cli", *map(str, arguments)],
            env=self.environment(**environment),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
        process = self.start(*arguments, **environment)
        out, err = process.communicate(timeout=300)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

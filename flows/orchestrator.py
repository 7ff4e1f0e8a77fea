"""Starts the orchestrator's server and workers and registers the deployments: `python -m flows.orchestrator`.

Everything it starts is offline, without analytics, and keeps its files in the data root.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from flows.environment import SERVER_VARIABLE, prepare_environment

CHECKOUT = Path(__file__).resolve().parent.parent
PORT = 4200

_MAKE_POOLS = "from flows.prefect_flows import make_pools; make_pools()"


def main(argv: Sequence[str] | None = None) -> int:
    """Become one of server, deploy, worker; returns an exit code only where what comes before has failed."""
    parser = argparse.ArgumentParser(prog="python -m flows.orchestrator", description=__doc__)
    parser.add_argument("what", choices=("server", "deploy", "worker"))
    parser.add_argument("--data-root", type=Path, default=Path("demo"), help="the protected directory of the runs")
    parser.add_argument("--pool", default="icu-cpu", help="the pool that a worker serves")
    parser.add_argument("--port", type=int, default=PORT, help="the local port of the server")
    chosen = parser.parse_args(argv)
    root = chosen.data_root.expanduser().absolute()
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.environ.setdefault("PREFECT_LOGGING_LEVEL", "INFO")
    prepare_environment(root)
    if chosen.what != "server":
        os.environ.setdefault(SERVER_VARIABLE, f"http://127.0.0.1:{chosen.port}/api")
    *first, last = _commands(chosen.what, chosen.pool, chosen.port)
    os.chdir(CHECKOUT)
    for command in first:
        if code := subprocess.run(command, env=_inherited(), check=False).returncode:  # noqa: S603 (ours)
            return code
    os.execve(last[0], last, _inherited())  # noqa: S606 (ours): signals reach what runs


def _commands(what: str, pool: str, port: int) -> list[list[str]]:
    prefect = [sys.executable, "-m", "prefect", "--no-prompt"]
    if what == "server":
        return [[*prefect, "server", "start", "--host", "127.0.0.1", "--port", str(port), "--analytics-off"]]
    if what == "worker":
        return [[*prefect, "worker", "start", "--pool", pool, "--type", "process", "--install-policy", "never"]]
    return [[sys.executable, "-c", _MAKE_POOLS], [*prefect, "deploy", "--all"]]


def _inherited() -> Mapping[str, str]:
    """The environment; workers run flows with the interpreter that started them, so its directory comes first."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return {**os.environ, "PATH": path, "ICU_MEMORY_CHECKOUT": str(CHECKOUT)}


if __name__ == "__main__":
    sys.exit(main())

"""Every command of the operator's guide works as it is written, over invented patients."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from command_line import Command, free_port

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "operating.md"
BLOCK = re.compile(r"^```sh(?: (root|postgres))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# The guide's make, with the environment that runs the tests in place of one that it would install.
PRELUDE = """
set -euo pipefail
make() { command make --silent --directory "$CHECKOUT" -o "$VENV/.installed" VENV="$VENV" "$@"; }
set -x
"""


def blocks(kind: str) -> list[str]:
    return [text for marked, text in BLOCK.findall(GUIDE.read_text(encoding="utf-8")) if marked == kind]


def test_every_shell_block_of_the_guide_is_run_or_marked() -> None:
    text = GUIDE.read_text(encoding="utf-8")
    assert len(re.findall(r"^```(?:sh|bash|shell|console)", text, re.MULTILINE)) == len(BLOCK.findall(text))
    assert len(blocks("")) >= 10


@pytest.mark.parametrize("kind", ["root", "postgres"])
def test_blocks_that_are_not_run_are_shell(kind: str) -> None:
    assert blocks(kind)
    for block in blocks(kind):
        checked = subprocess.run(["bash", "-n"], input=block, capture_output=True, text=True, check=False)
        assert checked.returncode == 0, checked.stderr


def test_the_guide_run_from_top_to_bottom_ends_well(command: Command, source: Path, tmp_path: Path) -> None:
    port = str(free_port())
    plain = tmp_path / "mimiciv"
    shutil.copytree(source, plain)
    script = "\n".join([PRELUDE, *blocks("")])
    script = script.replace("/srv/icu", str(tmp_path / "site")).replace("/data/mimiciv", str(plain))
    script = script.replace("127.0.0.1:4200", f"127.0.0.1:{port}").replace("make server ", f"make server PORT={port} ")
    # The same steps over fewer stays and buckets.
    script = script.replace("task_timeout = 14400", "task_timeout = 14400\nstays = 16\nbuckets = 4\nrecall_events = 1")
    binaries = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = command.environment(
        PATH=binaries, CHECKOUT=str(ROOT), VENV=sys.prefix, PREFECT_WORKER_QUERY_SECONDS="1", PORT=port
    )
    environment.pop("PREFECT_HOME")
    with (tmp_path / "out").open("w+b") as told:
        process = subprocess.Popen(
            ["bash", "-c", script], cwd=tmp_path, env=environment, stdin=subprocess.DEVNULL, stdout=told, stderr=told,
            start_new_session=True,
        )  # fmt: skip
        try:
            code = process.wait(420)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    said = (tmp_path / "out").read_text(errors="replace")
    assert code == 0, said[-6000:]
    assert (tmp_path / "site" / "run" / "report.html").exists()
    assert said.count("still holds a suppressed patient") == 1  # the restored backup

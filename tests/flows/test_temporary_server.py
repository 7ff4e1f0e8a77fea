from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

CHILD = """
import subprocess, sys, time
from flows import temporary_server
temporary_server.end_server_with_this_process()
watcher, = temporary_server._watchers
server = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print(server.pid, watcher.pid, flush=True)
time.sleep(60)
"""


def running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs /proc")
def test_a_killed_study_leaves_no_server_and_no_watcher_behind() -> None:
    study = subprocess.Popen([sys.executable, "-c", CHILD], stdout=subprocess.PIPE, text=True)
    assert study.stdout is not None
    pids = [int(word) for word in study.stdout.readline().split()]
    assert all(running(pid) for pid in pids)
    study.kill()
    study.wait()
    deadline = time.monotonic() + 10
    while any(running(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(running(pid) for pid in pids)

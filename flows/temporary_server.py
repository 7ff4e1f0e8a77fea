"""Ends the orchestrator's temporary server with the study that started it, even when the study is killed."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys

MARK = "ICU_MEMORY_STUDY_MARK"

# Waits for the end of its standard input, which the kernel closes with the study, then ends what carries the mark.
_WATCH = """
import os, signal, sys
sys.stdin.buffer.read()
needle = sys.argv[1].encode()
for entry in os.listdir("/proc"):
    try:
        if entry.isdigit() and int(entry) != os.getpid() and needle in open(f"/proc/{entry}/environ", "rb").read():
            os.kill(int(entry), signal.SIGTERM)
    except OSError:
        pass
"""


# Held for the life of the process: dropping a watcher closes its standard input.
_watchers: list[subprocess.Popen[bytes]] = []


def end_server_with_this_process() -> None:
    """Mark what this process starts from now on, and leave a watcher that ends it when this process has ended.

    The orchestrator stops its temporary server on every orderly exit; a kill leaves it behind.  Does nothing where the
    system has no /proc.  The watcher itself carries no mark and ends in the same moment.
    """
    if not os.path.isdir("/proc/self") or MARK in os.environ:
        return
    mark = f"{MARK}={secrets.token_hex(16)}"
    command = [sys.executable, "-I", "-S", "-c", _WATCH, mark]
    _watchers.append(subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True))  # noqa: S603 (our text)
    os.environ[MARK] = mark.partition("=")[2]

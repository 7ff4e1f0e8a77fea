"""What the integration tests share: a small invented source, a quiet orchestrator, one finished study."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import Command

from cohort_sql.simulate import simulate

PATIENTS = 24


@pytest.fixture(scope="session")
def command(tmp_path_factory: pytest.TempPathFactory) -> Command:
    return Command(tmp_path_factory.mktemp("orchestrator"))


@pytest.fixture(scope="session")
def server(command: Command) -> Iterator[str]:
    """The address of a server that lasts as long as the tests, so that each study starts faster."""
    with command.server() as address:
        yield address


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("sources") / "o'brien's files"
    simulate(made, patients=PATIENTS, seed=3)
    return made


@pytest.fixture(scope="session")
def finished(command: Command, source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished study of the small source, made with the temporary server."""
    run = tmp_path_factory.mktemp("finished") / "run"
    done = command.run("study", source, "--out", run, "--quick")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(run / "report.html")
    return run

"""Two directories change places in one step, or in two renames that a restart can tell apart and finish."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from flows.evidence_forget import asked, subjects_of_run
from flows.run import exchange as module
from flows.run.exchange import aside_of, exchange, flush_tree, mend
from flows.run.layout import RunLayout
from flows.settings import Settings
from flows.steps.forget.generation import next_of
from flows.steps.forget.work import delete
from flows.steps.site import settled
from flows.steps.verify import trust, verify


class Crash(BaseException):
    """The end of the process: nothing of the program catches it."""


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """A run that is published and its next generation."""
    left, right = tmp_path / "run", tmp_path / ".run.next"
    for place, text in ((left, "former"), (right, "following")):
        (place / "inside").mkdir(parents=True)
        (place / "inside" / "file").write_text(text)
    return left, right


def held(place: Path) -> str:
    return (place / "inside" / "file").read_text()


def crash_at_rename(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """End the process in place of its n-th rename of a directory, counted from zero."""
    rename, done = Path.rename, []

    def counted(path: Path, target: Path) -> Path:
        if path.is_dir():
            if len(done) == number:
                raise Crash
            done.append(path)
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", counted)


def no_step(_: Path, __: Path) -> bool:
    """A system without an atomic exchange."""
    return False


def test_linux_exchanges_in_one_step_without_any_rename(pair: tuple[Path, Path], monkeypatch) -> None:
    left, right = pair
    inodes = left.stat().st_ino, right.stat().st_ino
    crash_at_rename(monkeypatch, 0)
    exchange(left, right)
    assert (held(left), held(right)) == ("following", "former")
    assert (right.stat().st_ino, left.stat().st_ino) == inodes
    exchange(left, right)
    assert (held(left), held(right)) == ("former", "following")


def test_both_parents_are_flushed_after_the_exchange_and_not_before(tmp_path: Path, monkeypatch) -> None:
    left, right = tmp_path / "one" / "run", tmp_path / "other" / "run"
    for place in (left, right):
        (place / "inside").mkdir(parents=True)
        (place / "inside" / "file").write_text(place.parent.name)
    flushed: dict[Path, str] = {}
    monkeypatch.setattr(module, "sync_directory", lambda parent: flushed.update({parent: held(left)}))
    exchange(left, right)
    assert flushed == {left.parent: "other", right.parent: "other"}


def test_a_missing_generation_is_an_error_and_the_run_stays(pair: tuple[Path, Path]) -> None:
    left, right = pair
    with pytest.raises(FileNotFoundError):
        exchange(left, right.with_name("nowhere"))
    assert (held(left), held(right)) == ("former", "following")
    assert not aside_of(left).exists()


@pytest.mark.parametrize("code", [errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EPERM])
def test_a_file_system_without_the_step_is_served_by_renames(pair: tuple[Path, Path], monkeypatch, code: int) -> None:
    left, right = pair
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: _Refusing(code))
    exchange(left, right)
    assert (held(left), held(right), aside_of(left).exists()) == ("following", "former", False)


@pytest.mark.parametrize("code", [errno.EROFS, errno.EIO, errno.ENOSPC])
def test_any_other_fault_is_told_and_nothing_is_moved(pair: tuple[Path, Path], monkeypatch, code: int) -> None:
    left, right = pair
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: _Refusing(code))
    with pytest.raises(OSError, match=os.strerror(code)) as failure:
        exchange(left, right)
    assert failure.value.errno == code
    assert (held(left), held(right), aside_of(left).exists()) == ("former", "following", False)


def test_a_system_whose_library_lacks_the_call_is_served_by_renames(pair: tuple[Path, Path], monkeypatch) -> None:
    left, right = pair
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: object())
    exchange(left, right)
    assert (held(left), held(right)) == ("following", "former")


@pytest.mark.parametrize(
    ("number", "left_holds", "right_holds"),
    [(0, "former", "following"), (1, "following", "former"), (2, "following", "former")],
)
def test_a_crash_before_the_first_rename_changes_nothing_and_one_after_it_is_carried_through(
    pair: tuple[Path, Path], monkeypatch, number: int, left_holds: str, right_holds: str
) -> None:
    left, right = pair
    with monkeypatch.context() as patched:
        patched.setattr(module, "_swapped", no_step)
        crash_at_rename(patched, number)
        with pytest.raises(Crash):
            exchange(left, right)
    mend(left, right)
    assert (held(left), held(right), aside_of(left).exists()) == (left_holds, right_holds, False)
    mend(left, right)
    assert (held(left), held(right)) == (left_holds, right_holds)


@pytest.mark.parametrize("number", [0, 1])
def test_a_mend_that_is_cut_short_is_finished_by_the_next_one(
    pair: tuple[Path, Path], monkeypatch, number: int
) -> None:
    left, right = pair
    left.rename(aside_of(left))
    with monkeypatch.context() as patched:
        crash_at_rename(patched, number)
        with pytest.raises(Crash):
            mend(left, right)
    mend(left, right)
    assert (held(left), held(right), aside_of(left).exists()) == ("following", "former", False)


def test_a_generation_that_was_removed_between_the_renames_gives_the_run_back(pair: tuple[Path, Path]) -> None:
    left, right = pair
    left.rename(aside_of(left))
    right.rename(right.with_name("away"))
    mend(left, right)
    assert (held(left), right.exists(), aside_of(left).exists()) == ("former", False, False)


def test_a_former_run_left_aside_beside_two_whole_ones_goes(pair: tuple[Path, Path]) -> None:
    left, right = pair
    (aside_of(left) / "inside").mkdir(parents=True)
    mend(left, right)
    assert (held(left), held(right), aside_of(left).exists()) == ("former", "following", False)


def test_every_file_and_directory_of_a_generation_is_flushed(pair: tuple[Path, Path], monkeypatch) -> None:
    _, right = pair
    flushed = []
    monkeypatch.setattr(
        module.os, "fsync", lambda descriptor: flushed.append(Path(f"/proc/self/fd/{descriptor}").readlink())
    )
    flush_tree(right)
    assert sorted(flushed) == sorted([right, *right.rglob("*")])


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_deletion_killed_between_the_renames_is_completed_by_the_next_command(
    deletable: tuple[RunLayout, Settings], tmp_path: Path, monkeypatch, number: int
) -> None:
    layout, settings = deletable
    subject = subjects_of_run(layout)[0]
    monkeypatch.setattr(module, "_swapped", no_step)
    with monkeypatch.context() as patched:
        _crash_in_exchange(patched, number)
        with pytest.raises(Crash):
            delete(layout.root, [asked(tmp_path, "request-one", subject)], settings)
    assert layout.root.exists() == (number != 1)
    settled(settings)
    assert subject not in subjects_of_run(layout)
    assert not next_of(layout).root.exists()
    assert not aside_of(layout.root).exists()
    assert len(verify(layout.root, trust(None, settings.state, None), settings.state).bundles) == 1


def _crash_in_exchange(patched: pytest.MonkeyPatch, number: int) -> None:
    """Count renames from the beginning of the exchange."""
    swap: Callable[[Path, Path], bool] = module._swapped

    def begun(left: Path, right: Path) -> bool:
        crash_at_rename(patched, number)
        return swap(left, right)

    patched.setattr(module, "_swapped", begun)


class _Refusing:
    """A C library whose exchange fails with one error number."""

    def __init__(self, code: int) -> None:
        self._code = code

    def renameat2(self, *_: object) -> int:
        ctypes.set_errno(self._code)
        return -1

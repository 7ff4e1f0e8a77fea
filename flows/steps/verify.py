"""Verification: receipts against keys and ledger, a run against the state that its last receipt is about."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from flows.errors import CannotDecide, FlowError
from flows.run.inventory import file_digest
from flows.run.layout import RunLayout
from flows.run.manifest import read_manifest
from flows.run.stores import store_kind
from flows.settings import Settings
from flows.steps.site import refuse_suppressed, settled
from reports.receipts.annex import SubjectKey, matches
from reports.receipts.bundle import Bundle, check_bundle, check_since, read_bundle
from reports.receipts.errors import ReceiptMissing
from reports.receipts.keys import KeyDirectory, PublicKey, read_public_keys
from reports.receipts.ledger import Checkpoint, Ledger, read_checkpoint
from reports.receipts.state import read_state, state_digest

# Not in the state manifest: the report (its digest is in the run's manifest), the receipts, and what writes them.
OUTSIDE_THE_STATE = ("report", "manifest", "receipts")


@dataclass(frozen=True)
class Trust:
    """What a verification may rely on: keys, a ledger where there is one, a checkpoint that was kept elsewhere."""

    keys: Mapping[str, PublicKey]
    ledger: Ledger | None = None
    since: Checkpoint | None = None


@dataclass(frozen=True)
class Verified:
    """Receipts that passed every check, in the order of the ledger."""

    bundles: tuple[Bundle, ...]

    @property
    def last(self) -> Bundle:
        """The receipt of the latest deletion."""
        return self.bundles[-1]


@contextmanager
def cannot_decide() -> Iterator[None]:
    """A missing key or file is exit code 3, whichever part noticed it."""
    try:
        yield
    except ReceiptMissing as failure:
        raise CannotDecide(str(failure)) from None


def site_keys(state: Path) -> KeyDirectory:
    """The keys of a site."""
    return KeyDirectory(state / "keys")


def site_ledger(state: Path) -> Ledger:
    """The ledger of a site."""
    return Ledger(state / "ledger")


def settled_where_registered(settings: Settings) -> Settings:
    """Complete pending deletions as every command does; a bare copy of keys and ledger has none and is left alone."""
    return settled(settings) if _is_site(settings.state) else settings


def trust(public_key: Path | None, state: Path | None, since: str | None) -> Trust:
    """What the user gives and the site pins; keys that are given explicitly are trusted alone.

    ``since`` is a checkpoint's line, or a file that holds it.  Raises FlowError for a file that holds no key.
    """
    given = read_public_keys(_content(public_key), f"public key {public_key}") if public_key is not None else None
    pinned = site_keys(state).keys() if state is not None else {}
    if given is not None:
        # What the site knows of a given key, its role and validity, may restrict it and add nothing.
        given = {key_id: pinned.get(key_id, key) for key_id, key in given.items()}
    ledger = site_ledger(state) if state is not None and (state / "ledger").is_dir() else None
    return Trust(given if given is not None else pinned, ledger, _checkpoint(since))


def verify(target: Path, relied_on: Trust, state: Path | None = None) -> Verified:
    """Check a receipt file, or a run with all its receipts and files.

    Raises FlowError with the first mismatch, CannotDecide where a key, a receipt or the ledger that the answer depends
    on is missing.  A receipt alone says nothing of the run it is about.
    """
    with cannot_decide():
        if target.is_dir():
            return _verify_run(RunLayout(target), relied_on, state)
        bundle = read_bundle(_content(target), f"receipt {target}")
        _check(bundle, relied_on)
        return Verified((bundle,))


def verify_subject(bundle: Bundle, held: SubjectKey) -> None:
    """Raise FlowError unless the receipt is about exactly the ids that somebody holds."""
    if held.request_id != bundle.facts.request.request_id:
        raise FlowError("subject key: is of another request; give the one of this receipt")
    if not matches(held, bundle.facts.commitment):
        raise FlowError("receipt: its commitment is not the one of these ids; it is about somebody else")


def with_ids(held: SubjectKey, ids: tuple[int, ...], scope: str) -> SubjectKey:
    """A subject key with ids that were typed in, stays for the scope "stay"."""
    return replace(held, stay_ids=ids) if scope == "stay" else replace(held, subject_ids=ids)


def _verify_run(layout: RunLayout, relied_on: Trust, state: Path | None) -> Verified:
    _check_suppression(layout, state)  # first: a restored backup may hold no receipt at all
    files = sorted((layout.root / "receipts").glob("*.json"))
    if not files:
        raise CannotDecide(f"run {layout.root}: holds no receipts; nothing was deleted from it, or they were removed")
    bundles = sorted((_read_named(file, relied_on) for file in files), key=lambda bundle: bundle.index)
    last = bundles[-1]
    if any(bundle.facts.run_id != last.facts.run_id for bundle in bundles):
        raise FlowError(f"run {layout.root}: holds a receipt of another run; it was moved or copied")
    _check_state(layout, last)
    return Verified(tuple(bundles))


def _read_named(file: Path, relied_on: Trust) -> Bundle:
    what = f"receipt {file.name}"
    bundle = read_bundle(_content(file), what)
    if bundle.facts.request.request_id != file.stem:
        raise FlowError(f"{what}: is of another request than its name says; it was moved")
    _check(bundle, relied_on)
    return bundle


def _check(bundle: Bundle, relied_on: Trust) -> None:
    if not relied_on.keys:
        return
    found = check_bundle(bundle, relied_on.keys, relied_on.ledger)
    if not found and relied_on.since is not None:
        found = _since(bundle, relied_on)
    if found:
        raise FlowError(found[0])


def _since(bundle: Bundle, relied_on: Trust) -> list[str]:
    if relied_on.since is None:
        return []
    if relied_on.ledger is not None:
        return relied_on.ledger.verify(relied_on.keys, relied_on.since)
    return check_since(bundle, relied_on.since, relied_on.keys)


def _check_state(layout: RunLayout, last: Bundle) -> None:
    file = layout.root / "state.json"
    if not file.exists():
        raise CannotDecide(f"run {layout.root}: has no state.json, which its receipts are about; restore it")
    content = _content(file)
    if state_digest(content) != last.facts.state_digest:
        raise FlowError(f"run {layout.root}: state.json is not the one that its last receipt is about; it was swapped")
    listed = read_state(content, f"run {layout.root}: state.json").files
    for name, digest in sorted(listed.items()):
        _check_file(layout, name, digest, "state.json")
    for path in sorted(layout.root.rglob("*")):
        name = path.relative_to(layout.root).as_posix()
        regular = path.is_file() and not path.is_symlink()
        if (path.is_dir() and not path.is_symlink()) or (regular and (name in listed or _outside(name))):
            continue
        raise FlowError(f"run {layout.root}: {name} is not in its state manifest; it was added after the deletion")
    _check_report(layout)


def _check_report(layout: RunLayout) -> None:
    if not layout.report.exists():
        return
    manifest = read_manifest(layout)
    try:
        recorded = str((manifest.steps if manifest else {})["report"]["files"]["report.html"]["sha256"])
    except (KeyError, TypeError):
        raise CannotDecide(
            f"run {layout.root}: its manifest records no report.html; run `icu-memory report` on it"
        ) from None
    _check_file(layout, "report.html", recorded, "manifest.json")


def _check_file(layout: RunLayout, name: str, digest: str, source: str) -> None:
    file = layout.root / name
    if not file.is_file() or file.is_symlink():
        raise FlowError(f"run {layout.root}: {name} is missing; {source} lists it")
    if file_digest(file) != digest:
        raise FlowError(f"run {layout.root}: {name} differs from what {source} lists; it was changed")


def _check_suppression(layout: RunLayout, state: Path | None) -> None:
    """A run that holds a suppressed patient is refused where the site's list can be asked, and only there."""
    try:
        refuse_suppressed(layout, state if _is_site(state) else None)
    except CannotDecide:
        if _is_site(state):
            raise


def _is_site(state: Path | None) -> bool:
    return state is not None and (state / "registry.sqlite").exists()


def _outside(name: str) -> bool:
    return store_kind(name) in OUTSIDE_THE_STATE


def _checkpoint(since: str | None) -> Checkpoint | None:
    if since is None:
        return None
    file = Path(since)
    line = _content(file).decode("ascii", "replace").strip() if " " not in since else since.strip()
    return read_checkpoint(line, "--since")


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except FileNotFoundError:
        raise CannotDecide(f"{file}: is not there; check the path") from None
    except OSError as failure:
        raise FlowError(f"{file}: cannot be read ({failure.strerror}); check the path") from None

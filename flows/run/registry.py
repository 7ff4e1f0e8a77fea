"""The state directory of a data site: its runs, requests, journal and suppression list in one small database.

No id of a patient or stay is in it in clear: the suppression list holds keyed hashes, the journal what is put there.
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, get_args

from flows.errors import FlowError
from flows.run.layout import RunLayout
from flows.run.locks import site_lock
from flows.run.private import open_to_others, write_private
from flows.run.requests import Request, parse_request
from flows.run.suppression import Suppression

RequestState = Literal["received", "intended", "published", "done"]
STATES: tuple[RequestState, ...] = get_args(RequestState)
# From the intent on, the only way is forward.
PENDING: tuple[RequestState, ...] = ("intended", "published")
OWN_ENTRIES = frozenset({
    "registry.sqlite", "registry.sqlite-journal", "suppression.key", ".lock", "inbox", "keys", "ledger", "annexes",
})  # fmt: skip

_APPLICATION = 0x1C0DE1E7
_SCHEMA_VERSION = 1
_VERSION_PRAGMAS = ("application_id", "user_version")
_BUSY_SECONDS = 30.0
_KEY_BYTES = 32
_SCHEMA = """
create table site (key_check blob not null);
create table runs (
    run_id text primary key, path text not null unique, source text not null, registered_at text not null
);
create table inventory (
    run_id text not null references runs on delete cascade, kind text not null, primary key (run_id, kind)
);
create table requests (
    request_id text primary key, digest text not null, state text not null, changed_at text not null
);
create table journal (
    entry integer primary key, request_id text not null references requests, stage text not null, payload text not null
);
create index journal_request on journal (request_id, stage);
create table suppression (
    mark blob primary key, request_id text not null references requests
) without rowid;
"""


@dataclass(frozen=True)
class RegisteredRun:
    """A run of the site: an opaque id, where it was made, a digest of its source and when it was registered."""

    run_id: str
    path: Path
    source: str
    registered_at: str

    @property
    def layout(self) -> RunLayout:
        """The run's directory, which may have been moved or removed since."""
        return RunLayout(self.path)


@dataclass(frozen=True)
class JournalEntry:
    """One stage that the work on a request has reached, with what its writer needs to go on."""

    stage: str
    payload: Any


class Site:
    """An open state directory; made by `opened_site`.

    Every method is one transaction, or part of the caller's `transaction`; each survives the end of the process at any
    moment whole or not at all.  Raises FlowError, one line, where the disk is full, read-only or damaged.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection, key: bytes) -> None:
        self.path = path
        self._connection = connection
        self._key = key

    def lock(self) -> AbstractContextManager[None]:
        """Hold the site for one deletion; FlowError when another process does."""
        return site_lock(self.path)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Make the calls in the block one change, on disk when the block ends and undone when it raises."""
        if self._connection.in_transaction:
            yield
            return
        with _told(self.path):
            self._connection.execute("begin immediate")
        try:
            yield
            with _told(self.path):
                self._connection.commit()
        except BaseException:
            with suppress(sqlite3.Error):
                self._connection.rollback()
            raise

    def register_run(self, layout: RunLayout, source: str) -> str:
        """Register a run by its absolute path, once, with a digest of its source; returns its opaque id."""
        path = str(layout.root.absolute())
        with self.transaction():
            known = self._rows("select run_id from runs where path = ?", path)
            if known:
                self._write("update runs set source = ? where path = ?", source, path)
                return str(known[0][0])
            run_id = secrets.token_hex(8)
            self._write("insert into runs values (?, ?, ?, ?)", run_id, path, source, _now())
        return run_id

    def runs(self) -> list[RegisteredRun]:
        """All registered runs by path; their directories may be gone."""
        rows = self._rows("select run_id, path, source, registered_at from runs order by path")
        return [RegisteredRun(run_id, Path(path), source, at) for run_id, path, source, at in rows]

    def drop_run(self, run_id: str) -> None:
        """Forget a run and its inventory, such as one whose directory was removed."""
        with self.transaction():
            self._write("delete from runs where run_id = ?", run_id)

    def set_inventory(self, run_id: str, kinds: Iterable[str]) -> None:
        """Replace the kinds of artefact that a run may hold; anything else found in it is unknown."""
        with self.transaction():
            self._write("delete from inventory where run_id = ?", run_id)
            for kind in sorted(set(kinds)):
                self._write("insert into inventory values (?, ?)", run_id, kind)

    def inventory(self, run_id: str) -> frozenset[str]:
        """The kinds of artefact that a run may hold."""
        return frozenset(kind for (kind,) in self._rows("select kind from inventory where run_id = ?", run_id))

    def receive(self, request: Request) -> RequestState:
        """Take a request in, once; returns its state, "received" for a new one.

        The request with its ids lies in the inbox (0600) until it is done.  Raises FlowError for another request under
        an id that was used before.
        """
        digest = request.digest(self._key)
        with self.transaction():
            known = self._rows("select digest, state from requests where request_id = ?", request.request_id)
            if known and not hmac.compare_digest(known[0][0], digest):
                raise FlowError(
                    f"request {request.request_id}: differs from the one that this site received under the same id; "
                    "give it another request_id"
                )
            if not known:
                values = (request.request_id, digest, "received", _now())
                self._write("insert into requests values (?, ?, ?, ?)", *values)
            state: RequestState = known[0][1] if known else "received"
            if state != "done":
                self._put_inbox(request)
        return state

    def request_state(self, request_id: str) -> RequestState | None:
        """How far a request is, None for an unknown one."""
        rows = self._rows("select state from requests where request_id = ?", request_id)
        state: RequestState | None = rows[0][0] if rows else None
        return state

    def set_request_state(self, request_id: str, state: RequestState) -> None:
        """Move a request on; a state is never left for an earlier one, and "done" empties its journal and its inbox.

        Raises FlowError for an unknown request and for a step back.
        """
        with self.transaction():
            found = self.request_state(request_id)
            if found is None or STATES.index(state) < STATES.index(found):
                raise FlowError(f"request {request_id}: cannot become {state}; run `icu-memory delete` with it again")
            self._write("update requests set state = ?, changed_at = ? where request_id = ?", state, _now(), request_id)
            if state == "done":
                self._write("delete from journal where request_id = ?", request_id)
        if state == "done":
            self.clear_inbox(request_id)

    def withdraw(self, request_id: str) -> None:
        """Forget a request that was received and came to nothing; raises FlowError after its intent."""
        with self.transaction():
            if self.request_state(request_id) not in ("received", None):
                raise FlowError(f"request {request_id}: is under way and can only be completed")
            self._write("delete from journal where request_id = ?", request_id)
            self._write("delete from requests where request_id = ?", request_id)
        self.clear_inbox(request_id)

    def requests(self) -> dict[str, RequestState]:
        """All requests by id with their states."""
        return dict(self._rows("select request_id, state from requests order by request_id"))

    def pending(self) -> list[str]:
        """Requests whose intent is recorded and which are not done, in the order in which they were received."""
        rows = self._rows("select request_id from requests where state in (?, ?) order by rowid", *PENDING)
        return [request_id for (request_id,) in rows]

    def write_journal(self, request_id: str, stage: str, payload: Mapping[str, Any]) -> None:
        """Record a stage of a received request; the payload is JSON that only its writer understands."""
        text = json.dumps(payload, sort_keys=True, allow_nan=False)
        with self.transaction():
            self._write("delete from journal where request_id = ? and stage = ?", request_id, stage)
            self._write("insert into journal (request_id, stage, payload) values (?, ?, ?)", request_id, stage, text)

    def journal(self, request_id: str) -> list[JournalEntry]:
        """The stages that a request has reached, in order; empty when it is done."""
        rows = self._rows("select stage, payload from journal where request_id = ? order by entry", request_id)
        return [JournalEntry(stage, json.loads(payload)) for stage, payload in rows]

    def suppression(self) -> Suppression:
        """The suppression list as it is now, with the site's key."""
        return Suppression(self._key, frozenset(mark for (mark,) in self._rows("select mark from suppression")))

    def add_suppression(
        self, request_id: str, *, subject_ids: Iterable[int] = (), stay_ids: Iterable[int] = ()
    ) -> None:
        """Suppress patients and stays for a received request; those that are suppressed already stay so."""
        marks = Suppression(self._key, frozenset()).marks_of(subject_ids, stay_ids)
        with self.transaction():
            for mark in sorted(marks):
                self._write("insert or ignore into suppression values (?, ?)", mark, request_id)

    def suppressed_for(self, marks: Iterable[bytes]) -> frozenset[str]:
        """The requests for which any of these marks are suppressed."""
        rows = self._rows("select mark, request_id from suppression")
        wanted = set(marks)
        return frozenset(request_id for mark, request_id in rows if mark in wanted)

    def inbox_file(self, request_id: str) -> Path:
        """Where the request lies with its ids until it is done."""
        return self.path / "inbox" / f"{request_id}.json"

    def take_inbox(self, request_id: str) -> Request:
        """The request under way; FlowError where its file is gone or was changed since it was received."""
        file = self.inbox_file(request_id)
        told = f"request {request_id}: its file in the inbox of {self.path}"
        try:
            request = parse_request(file.read_text(encoding="utf-8"), told)
        except (OSError, UnicodeDecodeError):
            raise FlowError(f"{told} cannot be read; run `icu-memory delete` with the request file again") from None
        rows = self._rows("select digest from requests where request_id = ?", request_id)
        if not rows or not hmac.compare_digest(rows[0][0], request.digest(self._key)):
            raise FlowError(f"{told} is not what was received; run `icu-memory delete` with the request file again")
        return request

    def clear_inbox(self, request_id: str) -> None:
        """Remove the request with its ids."""
        with _told(self.path):
            self.inbox_file(request_id).unlink(missing_ok=True)

    def sweep_inbox(self) -> None:
        """Remove what an interrupted command left in the inbox: files of requests that are done or never came in."""
        inbox = self.path / "inbox"
        if not inbox.is_dir():
            return
        with self.transaction(), _told(self.path):
            open_files = {f"{name}.json" for name, state in self.requests().items() if state != "done"}
            for file in inbox.iterdir():
                if file.name not in open_files:
                    file.unlink(missing_ok=True)

    def _put_inbox(self, request: Request) -> None:
        with _told(self.path):
            (self.path / "inbox").mkdir(mode=0o700, exist_ok=True)
            write_private(self.inbox_file(request.request_id), request.to_json(), replace=True)

    def _rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        with _told(self.path):
            return self._connection.execute(query, values).fetchall()

    def _write(self, statement: str, *values: object) -> None:
        with _told(self.path):
            self._connection.execute(statement, values)


@contextmanager
def opened_site(path: Path) -> Iterator[Site]:
    """Open a state directory, made with mode 0700 where absent.

    Raises FlowError, and leaves the disk as it was, for one that others may enter, a directory of something else, a
    damaged or newer registry, a key that is missing or not the one the list was made with, a full or read-only disk.
    """
    state = path.expanduser().absolute()
    with _told(state):
        _refuse_foreign(state)
        connection = _connected(state)
    try:
        with _told(state):
            key = _prepared(connection, state)
        site = Site(state, connection, key)
        site.sweep_inbox()
        yield site
    finally:
        connection.close()


def _refuse_foreign(state: Path) -> None:
    if not state.exists():
        state.parent.mkdir(parents=True, exist_ok=True)
        state.mkdir(mode=0o700, exist_ok=True)
    if not state.is_dir():
        raise FlowError(f"state directory {state}: is not a directory; name another --state-dir")
    if state.stat().st_uid != os.geteuid():
        raise FlowError(f"state directory {state}: belongs to another user; name another --state-dir")
    if open_to_others(state):
        raise FlowError(f"state directory {state}: is open to others; chmod 700 it")
    foreign = [entry.name for entry in state.iterdir() if entry.name not in OWN_ENTRIES and entry.name[0] != "."]
    if foreign and not (state / "registry.sqlite").exists():
        raise FlowError(
            f"state directory {state}: holds {len(foreign)} entries but no registry; name a new or empty directory"
        )


def _connected(state: Path) -> sqlite3.Connection:
    """Open the registry as one that survives a power cut and zeroes what it deletes."""
    registry = state / "registry.sqlite"
    # Made here, since the library would give it the mode of the process.
    os.close(os.open(registry, os.O_RDWR | os.O_CREAT, 0o600))
    if open_to_others(registry):
        raise FlowError(f"state directory {state}: registry.sqlite is open to others; chmod 600 it")
    connection = sqlite3.connect(registry, timeout=_BUSY_SECONDS, isolation_level=None)
    try:
        # Truncation of the rollback journal is flushed with FULL, its removal would not be; no log outlives a commit.
        for pragma in ("journal_mode = truncate", "synchronous = full", "secure_delete = on", "foreign_keys = on"):
            connection.execute(f"pragma {pragma}")
        connection.execute("pragma temp_store = memory")
    except BaseException:
        connection.close()
        raise
    return connection


def _prepared(connection: sqlite3.Connection, state: Path) -> bytes:
    """Make the tables and the key of a new registry in one transaction, check those of an old one; returns the key."""
    connection.execute("begin immediate")
    try:
        application, schema = (connection.execute(f"pragma {name}").fetchone()[0] for name in _VERSION_PRAGMAS)
        if (application, schema) == (0, 0) and not connection.execute("select 1 from sqlite_master").fetchone():
            key = _new_key(state)
            for statement in _SCHEMA.split(";"):
                connection.execute(statement)
            connection.execute("insert into site values (?)", (_key_check(key),))
            connection.execute(f"pragma application_id = {_APPLICATION}")
            connection.execute(f"pragma user_version = {_SCHEMA_VERSION}")
        elif application != _APPLICATION:
            raise FlowError(f"state directory {state}: registry.sqlite is of another program; name another directory")
        elif schema != _SCHEMA_VERSION:
            raise FlowError(
                f"state directory {state}: registry.sqlite has schema {schema}, this version reads {_SCHEMA_VERSION}; "
                "use the version of the program that wrote it"
            )
        else:
            key = _read_key(state, connection.execute("select key_check from site").fetchone()[0])
    except BaseException:
        connection.rollback()
        raise
    connection.commit()
    return key


def _new_key(state: Path) -> bytes:
    """The key of a new site, or the one that a start which was cut short has left."""
    file = state / "suppression.key"
    if not file.exists():
        write_private(file, secrets.token_bytes(_KEY_BYTES), replace=True)
    return _checked_key(file, state)


def _read_key(state: Path, check: bytes) -> bytes:
    file = state / "suppression.key"
    if not file.exists():
        raise FlowError(f"state directory {state}: suppression.key is missing; restore it from its backup")
    key = _checked_key(file, state)
    if not hmac.compare_digest(_key_check(key), check):
        raise FlowError(
            f"state directory {state}: suppression.key is not the one that the list was made with; restore that one"
        )
    return key


def _checked_key(file: Path, state: Path) -> bytes:
    if open_to_others(file):
        raise FlowError(f"state directory {state}: suppression.key can be read by others; chmod 600 it")
    key = file.read_bytes()
    if len(key) != _KEY_BYTES:
        raise FlowError(f"state directory {state}: suppression.key is damaged; restore it from its backup")
    return key


def _key_check(key: bytes) -> bytes:
    return hmac.digest(key, b"suppression.key", "sha256")


@contextmanager
def _told(state: Path) -> Iterator[None]:
    """Turn a fault of the database or the disk into one line about the state directory."""
    try:
        yield
    except sqlite3.Error as failure:
        # SQLITE_READONLY_DBMOVED and the like; the library's own text may quote a statement.
        name = (getattr(failure, "sqlite_errorname", None) or "SQLITE_ERROR").split("_")[1]
        told = _MEANING.get(name, f"registry.sqlite refused a change ({name}); please report this line")
        raise FlowError(f"state directory {state}: {told}") from None
    except OSError as failure:
        reason = os.strerror(failure.errno) if failure.errno else "input or output failed"
        raise FlowError(f"state directory {state}: {reason}; see to it and run the same command again") from None


_MEANING = {
    "FULL": "the disk is full; make room and run the same command again",
    "READONLY": "is on a read-only disk; make it writable or name another --state-dir",
    "CANTOPEN": "registry.sqlite cannot be opened; check its permissions",
    "IOERR": "the disk does not answer; see to it and run the same command again",
    "BUSY": "another command is writing in it; run the same command again",
    "CORRUPT": "registry.sqlite is damaged; restore the directory from its backup",
    "NOTADB": "registry.sqlite is not a registry; name another directory",
}


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

"""The support-vector memory: SVDD at a fixed cap, kept exact token by token [SVA 3.1-3.3, CP, TD]."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Literal, NoReturn, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from memory.contract import Array, Certificate, Ids, MemoryRefused, NotConverged, NotReady, Outcome, Path
from memory.digest import state_digest
from memory.kernel import kernel
from memory.svdd import _core
from memory.svdd.certificate import LARGEST_SLACK, MOST_NEAR, LocationState, certify, with_cold
from memory.svdd.checks import carries, inequality, key_rows, leaving_ids, positive, token_ids
from memory.svdd.probes import Readings, largest_change, probe_points
from memory.svdd.values import Values

ffi, lib = _core.ffi, _core.lib
_PATHS: tuple[Path, ...] = ("reserve", "walk", "repaired", "resolved")
_SMALLEST_DENOMINATOR = 1e-290
Scalar = TypeVar("Scalar", bound=np.generic)
ColdStore = Callable[[list[int]], tuple[Array, Array | None]]


@ffi.def_extern(error=1)  # type: ignore[untyped-decorator]
def svdd_fetch_key(context: Any, token: int, out: Any) -> int:
    """Called by the compiled core when it needs the key of a cold token that the memory does not hold itself."""
    return ffi.from_handle(context)._fetch(token, out)  # type: ignore[no-any-return]


class SVDDMemory:
    """An exact support-vector memory of keys with optional values.

    Keys are (n, d) finite float64, ids distinct 64-bit integers, C the cap of one token (0 < C), sigma > 0 the kernel
    width of exp(-||a - b||^2 / sigma^2). `cold(ids) -> (keys, values)` is asked for pruned tokens; without it the
    memory keeps them itself, outside the hot arrays. Every refusal raises MemoryRefused before anything changes;
    while n * C < 1 the memory only collects, and score, read and certificate raise NotReady.

    Source: [SVA 3.1-3.3] for problem, admission and deletion; [CP] for the walk; exact duplicates share one location
    whose mass its copies split equally. It keeps no times and no patients, and one object is not for use from several
    threads.
    """

    def __init__(self, C: float, sigma: float, *, cold: ColdStore | None = None) -> None:
        self._C, self._sigma, self._cold = positive("C", C), positive("sigma", sigma), cold
        self._clear()

    def _clear(self) -> None:
        self._core: Any = None
        self._handle: Any = None
        self._known: set[int] = set()
        self._values = Values()
        self._fetched: BaseException | None = None
        self._asking = False

    # ---- what it holds ----

    @property
    def C(self) -> float:
        """Cap of one token."""
        return self._C

    @property
    def sigma(self) -> float:
        """Kernel width."""
        return self._sigma

    @property
    def ready(self) -> bool:
        """Whether the tokens carry the whole mass, so that there is a gate."""
        return self._core is not None and bool(self._core.solved)

    @property
    def rho(self) -> float:
        """The multiplier of the mass; the upper end of its interval where the margin is empty."""
        self._require_ready()
        return float(self._core.r) - 1.0

    @property
    def ids(self) -> Ids:
        """Ids of the hot tokens in order of arrival: (n,) int64."""
        if self._core is None:
            return np.empty(0, np.int64)
        return copied(self._core.token_id, self._core.tokens, np.int64)

    @property
    def alpha(self) -> Array:
        """Coefficients aligned with `ids`: (n,), zero while collecting."""
        if self._core is None:
            return np.empty(0)
        location, copies = self._location(), copied(self._core.mult, self._core.n, np.int32)
        return (self._mass() / copies)[location]

    @property
    def margin(self) -> list[int]:
        """Ids with 0 < alpha < C."""
        return self._ids_where(lambda mass, cap: (mass > 0.0) & (mass < cap))

    @property
    def bound(self) -> list[int]:
        """Ids with alpha = C."""
        return self._ids_where(lambda mass, cap: mass >= cap)

    @property
    def reserve(self) -> list[int]:
        """Ids of hot tokens with alpha = 0."""
        return self._ids_where(lambda mass, _cap: mass <= 0.0)

    @property
    def cold_ids(self) -> list[int]:
        """Ids of pruned tokens, ascending."""
        if self._core is None:
            return []
        return sorted(copied(self._core.cold_id, self._core.cold, np.int64).tolist())

    @property
    def locations(self) -> int:
        """Distinct hot keys."""
        return int(self._core.n) if self._core is not None else 0

    @property
    def hot_bytes(self) -> int:
        """Bytes of the solver's arrays: the kernel among hot locations, their keys and vectors, the margin factor."""
        if self._core is None:
            return 0
        room, margin, tokens = int(self._core.room), int(self._core.margin_room), int(self._core.token_room)
        return 8 * room * (room + int(self._core.d) + 8) + 23 * room + 8 * margin * (margin + 3) + 12 * tokens

    def __len__(self) -> int:
        return len(self._known)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a support-vector memory is copied and stored through to_state and from_state")

    def __contains__(self, token: object) -> bool:
        return token in self._known

    # ---- giving it tokens ----

    def fit(self, keys: Array, values: Array | None = None, ids: Iterable[int] | None = None) -> Self:
        """Replace the content by keys (n, d), optional values (n, d_v) and ids (default 0..n-1), solved exactly.

        Raises MemoryRefused where n * C < 1, a key is not finite or an id comes twice. The result is that of
        admitting the rows one by one.
        """
        self._refuse_while_asking("a fit")
        fresh = SVDDMemory(self._C, self._sigma, cold=self._cold)
        array = fresh._checked_keys(keys)
        if not carries(len(array), self._C):
            raise MemoryRefused(inequality(len(array), self._C) + ": give more keys or a larger C")
        fresh.admit_many(array, values, ids)
        self.__dict__.update(fresh.__dict__)
        self._bind_fetch()
        return self

    def admit(self, key: Array, value: Array | None = None, id: int | None = None) -> Outcome:
        """Take in one key (d,) with an optional value (d_v,); the id defaults to one above the largest held."""
        row = np.asarray(key, dtype=np.float64)
        if row.ndim != 1:
            raise MemoryRefused(f"a key has shape {row.shape}, expected (d,): admit_many takes several")
        values = None if value is None else np.atleast_1d(np.asarray(value, dtype=np.float64))[None, :]
        return self.admit_many(row[None, :], values, None if id is None else [id])

    def admit_many(self, keys: Array, values: Array | None = None, ids: Iterable[int] | None = None) -> Outcome:
        """Take in keys (n, d) in order, in one compiled call: the same state as one by one.

        values (n, d_v) and ids are optional. All or nothing on refusal: an id that is held or repeated, a number that
        is not finite, another width. Source: [SVA 3.2]. Raises NotConverged if no path reaches a checked state.
        """
        array = self._checked_keys(keys)
        rows = self._values.checked(values, len(array))
        tokens = token_ids(ids, len(array), self._known)
        if not len(array):
            return Outcome("reserve")
        self._open(array.shape[1])
        done = ffi.new("int *")
        given = ffi.from_buffer("double[]", array), ffi.from_buffer("int64_t[]", tokens), len(array), done
        status = self._change("admission", lambda: int(lib.svdd_admit_many(self._core, *given)))
        arrived = int(done[0]) - (1 if status and int(done[0]) else 0)
        held = tokens[: len(array) if not status else arrived].tolist()
        self._known.update(held)
        self._values.put(held, None if rows is None else rows[: len(held)])
        self._raise_on(status, "admission")
        return self._outcome()

    # ---- taking tokens out ----

    def delete(self, ids: Iterable[int], below_capacity: Literal["refuse", "collect"] = "refuse") -> Outcome:
        """Make the memory the exact solution for the tokens that stay, hot and cold ids alike, all or nothing.

        Refused: an unknown id, an id twice and, unless below_capacity is "collect", a rest with n * C < 1; "collect"
        returns to collecting, which is exactly a memory that was given the rest. Source: [SVA 3.3]; MATH 1.3 for cold
        tokens. It does not reach copies of the keys outside this object.
        """
        if below_capacity not in ("refuse", "collect"):
            raise MemoryRefused(f"below_capacity is {below_capacity!r}: choose 'refuse' or 'collect'")
        leaving = leaving_ids(ids, self._known)
        rest = len(self._known) - len(leaving)
        if leaving and self.ready and below_capacity == "refuse" and not carries(rest, self._C):
            raise MemoryRefused(
                inequality(rest, self._C)
                + " after this deletion: keep more tokens, or delete with below_capacity='collect'"
            )
        if not leaving:
            return Outcome("reserve")
        before = int(self._core.tokens)
        array = np.array(leaving, dtype=np.int64)
        given = ffi.from_buffer("int64_t[]", array), len(leaving)
        status = self._change("deletion", lambda: int(lib.svdd_delete(self._core, *given)))
        self._raise_on(status, "deletion")
        self._known.difference_update(leaving)
        self._values.drop(leaving)
        return self._outcome(removed=before - int(self._core.tokens))

    def prune(self) -> Outcome:
        """Move reserve tokens to cold storage, certified: the hot state goes on to equal the full-history solution.

        The outcome says how many left and by how much score and readout changed on probes (the hot keys and the
        midpoints of neighbours in arrival). Source: [SVA Prop. 1] and MATH 1.3. It bounds work, not stored history.
        """
        self._require_ready()
        probes = probe_points(self._location_keys())
        before = self._readings(probes)
        moved = ffi.new("int *")
        status = self._change("pruning", lambda: int(lib.svdd_prune(self._core, moved)))
        self._raise_on(status, "pruning")
        if self._cold is not None:
            self._values.drop(self.cold_ids)
        score_change, readout_change = largest_change(before, self._readings(probes))
        return self._outcome(removed=int(moved[0]), score_change=score_change, readout_change=readout_change)

    def prune_to(self, budget: int, policy: Literal["density", "oldest"] = "density") -> Outcome:
        """Forget tokens until at most `budget` are held, reserve first, then by policy; the outcome is "uncertified".

        "density" drops the tokens with the greatest summed kernel to the others, "oldest" the first to arrive. The
        state is exact for what stays, not for the history: this is the comparison of [SVA 3.3], not a bound. Raises
        MemoryRefused where budget * C < 1 or the policy is unknown.
        """
        if policy not in ("density", "oldest"):
            raise MemoryRefused(f"policy is {policy!r}: choose 'density' or 'oldest'")
        if not carries(budget, self._C):
            raise MemoryRefused(inequality(budget, self._C) + " at this budget: allow more tokens")
        self._require_ready()
        before = self._readings(probes := probe_points(self._location_keys()))
        surplus = len(self._known) - budget
        leaving = self._by_policy(policy)[: max(surplus, 0)]
        self.delete(leaving)
        score_change, readout_change = largest_change(before, self._readings(probes))
        return self._outcome(
            removed=len(leaving), certified=False, score_change=score_change, readout_change=readout_change
        )

    def _by_policy(self, policy: str) -> list[int]:
        """All ids in the order in which an empirical policy gives them up."""
        ids = self.ids
        active = self.alpha > 0.0
        arrival = np.arange(len(ids), dtype=np.float64)
        cost = arrival if policy == "oldest" else -self._summed_kernel()
        return [*self.cold_ids, *ids[np.lexsort((arrival, cost, active))].tolist()]

    def _summed_kernel(self) -> Array:
        keys = self._location_keys()[self._location()]
        return np.asarray(kernel(keys, keys, self._sigma).sum(axis=1))

    # ---- asking it ----

    def score(self, Q: Array) -> Array:
        """Gate score 2 sum alpha kappa(q, x) - rho of queries (q, d): (q,). Pure. Source: [SVA 3.1]."""
        self._require_ready()
        queries = self._checked_keys(Q)
        out = np.empty(len(queries))
        lib.svdd_score(self._core, ffi.from_buffer("double[]", queries), len(queries), ffi.from_buffer("double[]", out))
        return out

    def read(self, Q: Array) -> Array:
        """Readout sum alpha kappa v / sum alpha kappa of queries (q, d): (q, d_v). Pure. Source: [SVA 3.1].

        A query whose denominator underflows has no readout: its row is NaN. So is every row of a memory without values.
        """
        self._require_ready()
        queries = self._checked_keys(Q)
        weights: Array = np.empty((len(queries), int(self._core.n)))
        lib.svdd_weights(
            self._core, ffi.from_buffer("double[]", queries), len(queries), ffi.from_buffer("double[]", weights)
        )
        total: Array = weights.sum(axis=1)
        active = self._mass() > 0.0
        with np.errstate(invalid="ignore", divide="ignore"):
            out: Array = np.einsum("ql,lv->qv", weights[:, active], self._location_values()[active]) / total[:, None]
        out[total < _SMALLEST_DENOMINATOR] = np.nan
        return out

    def certificate(self) -> Certificate:
        """Bound on the distance to the exact solution, recomputed from keys and coefficients [MATH 1.2]. Pure."""
        self._require_ready()
        return self._certifier()()

    # ---- keeping it ----

    def digest(self) -> str:
        """SHA-256 (hex) of the state; scoring and reading leave it as it is."""
        return state_digest(self.to_state())

    def to_state(self) -> dict[str, Any]:
        """The state as arrays, numbers, strings and nested dicts; see memory.svdd.state for its fields."""
        from memory.svdd.state import to_state  # noqa: PLC0415  (state builds memories, so it imports this module)

        return to_state(self)

    @classmethod
    def from_state(cls, state: dict[str, Any], verify: bool = True, *, cold: ColdStore | None = None) -> SVDDMemory:
        """A memory that scores bit for bit as the one that gave the state, without solving again.

        With verify, a state whose score may be off by more than 1e-8 of the range of the score, or whose mass error
        exceeds 1e-9, is refused; verify=False loads it so that it can be audited. Raises MemoryRefused also on a
        malformed state.
        """
        from memory.svdd.state import from_state  # noqa: PLC0415

        return from_state(state, verify, cold)

    # ---- inside ----

    def _open(self, width: int) -> None:
        if self._core is None:
            core = lib.svdd_new(width, self._C, self._sigma, 0 if self._cold is not None else 1)
            if core == ffi.NULL:
                raise MemoryError("the support-vector memory could not be allocated")
            self._core = ffi.gc(core, lib.svdd_free)
            self._bind_fetch()

    def _bind_fetch(self) -> None:
        if self._core is not None and self._cold is not None:
            self._handle = ffi.new_handle(self)
            lib.svdd_set_fetch(self._core, lib.svdd_fetch_key, self._handle)

    def _fetch(self, token: int, out: Any) -> int:
        try:
            key, value = self._fetch_cold([token])
        except BaseException as error:  # whatever it is, the compiled core must stop here
            self._fetched = error
            return 1
        ffi.buffer(out, 8 * int(self._core.d))[:] = np.ascontiguousarray(key[0], dtype=np.float64).tobytes()
        self._values.put([token], value)
        return 0

    def _fetch_cold(self, tokens: list[int]) -> tuple[Array, Array | None]:
        """Keys and values of cold tokens from the caller's store, checked."""
        assert self._cold is not None  # noqa: S101  (only bound with a store)
        already, self._asking = self._asking, True
        try:
            keys, values = self._cold(tokens)
        finally:
            self._asking = already
        array = self._checked_keys(keys)
        if len(array) != len(tokens):
            raise MemoryRefused(
                f"the cold store gave {len(array)} keys for {len(tokens)} ids: it must give one row per id"
            )
        return array, self._values.checked(values, len(tokens))

    def _refuse_while_asking(self, what: str) -> None:
        if self._asking:
            raise MemoryRefused(
                f"{what} inside the cold store's own answer: the store may not change the memory that asks"
            )

    def _change(self, what: str, operation: Callable[[], int]) -> int:
        """Run an operation of the core that may ask the cold store; where the store fails, nothing has changed."""
        self._refuse_while_asking(what)
        before = self.to_state() if self._cold is not None and self._core is not None else None
        status = operation()
        if status == lib.SVDD_FETCH_FAILED and before is not None:
            self.__dict__.update(
                SVDDMemory.from_state(before, verify=False, cold=self._cold).__dict__ | {"_fetched": self._fetched}
            )
            self._bind_fetch()
            raise_store_failure(what, self._fetched)
        return status

    def _checked_keys(self, keys: Array) -> Array:
        return key_rows(keys, None if self._core is None else int(self._core.d))

    def _require_ready(self) -> None:
        if not self.ready:
            raise NotReady(
                inequality(len(self._known), self._C) + ": the memory is still collecting; admit more tokens"
            )

    def _raise_on(self, status: int, what: str) -> None:
        if not status:
            return
        if status == lib.SVDD_NO_MEMORY:
            raise MemoryError(f"{what} of the support-vector memory ran out of memory")
        raise NotConverged(f"{what} reached no state that passes its checks; the memory is as it was before")

    def _mass(self) -> Array:
        return copied(self._core.a, self._core.n, np.float64)

    def _caps(self) -> Array:
        return copied(self._core.cap, self._core.n, np.float64)

    def _location(self) -> NDArray[np.int32]:
        return copied(self._core.token_location, self._core.tokens, np.int32)

    def _location_keys(self) -> Array:
        return copied(self._core.x, self._core.n * self._core.d, np.float64).reshape(self._core.n, self._core.d)

    def _location_values(self) -> Array:
        """Mean value of each location's tokens: its mass is split equally among them."""
        values = self._values.matrix(self.ids)
        if values is None:
            return np.full((self._core.n, 1), np.nan)
        location = self._location()
        total = np.zeros((self._core.n, values.shape[1]))
        np.add.at(total, location, values)
        return np.asarray(total / copied(self._core.mult, self._core.n, np.int32)[:, None])

    def _ids_where(self, test: Callable[[Array, Array], NDArray[np.bool_]]) -> list[int]:
        if not self.ready:
            return []
        chosen = test(self._mass(), self._caps())
        listed: list[int] = self.ids[chosen[self._location()]].tolist()
        return listed

    def _readings(self, probes: Array) -> Readings:
        return Readings(self.score(probes), self.read(probes))

    def _certifier(self) -> Callable[[], Certificate]:
        """The certificate of the state as it is now, computed when it is asked for."""
        core, width = self._core, int(self._core.d)
        hot = LocationState(self._location_keys(), self._mass(), self._caps(), self._sigma, float(core.r))
        clock = float(core.drift) + float(core.drift_low)
        found = np.empty(min(int(core.cold), MOST_NEAR), dtype=np.int32)
        count = lib.svdd_cold_until(core, clock + LARGEST_SLACK, len(found), ffi.from_buffer("int[]", found))
        near: list[int] = found[:count].tolist()
        ids = [int(core.cold_id[i]) for i in near]
        own = None if self._cold is not None else [copied(core.cold_key + i * width, width, np.float64) for i in near]
        distant = int(core.cold) > count

        def certificate() -> Certificate:
            if not ids:
                return certify(replace(hot, distant_cold=distant))
            cold = np.array(own) if own is not None else self._fetch_cold(ids)[0]
            return certify(with_cold(hot, cold, float(core.C), distant))

        return certificate

    def _outcome(self, **facts: Any) -> Outcome:
        core = self._core
        certifier = self._certifier() if self.ready else lambda: None
        return Outcome(
            _PATHS[core.path], int(core.events), int(core.reexamined), int(core.readmitted), _certify=certifier, **facts
        )


def copied(pointer: Any, count: int, dtype: type[Scalar]) -> NDArray[Scalar]:
    """A numpy copy of `count` elements behind a core pointer."""
    if count == 0:
        return np.empty(0, dtype)
    return np.frombuffer(ffi.buffer(pointer, count * np.dtype(dtype).itemsize), dtype=dtype).copy()


def raise_store_failure(what: str, cause: BaseException | None) -> NoReturn:
    """Name a failing cold store; what is no ordinary error (an interrupt) goes on as itself."""
    if cause is not None and not isinstance(cause, Exception):
        raise cause
    raise NotConverged(f"{what} stopped: the cold store could not give a pruned token; nothing changed") from cause

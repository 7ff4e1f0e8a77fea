"""Between one memory of a batch and SVDDMemory: the same state as plain arrays, and a solve by the compiled core."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from memory.contract import Array, Ids, NotConverged
from memory.svdd.batch.ledger import Ledger
from memory.svdd.batch.store import Store
from memory.svdd.batch.work import Work
from memory.svdd.memory import SVDDMemory


def state_of(store: Store, b: int, ledger: Ledger, C: float, sigma: float) -> dict[str, Any]:
    """The state of memory b as SVDDMemory.to_state gives it."""
    n = int(store.n[b])
    serials = store.serial[b, :n].tolist()
    place = {serial: slot for slot, serial in enumerate(serials)}
    ids = np.array(list(ledger.hot), dtype=np.int64)
    location = np.array([place[serial] for serial in ledger.hot.values()], dtype=np.int32)
    mass = store.a[b, :n].cpu().numpy().copy()
    copies = store.mult[b, :n].cpu().numpy()
    return {
        "format": "svdd", "C": C, "sigma": sigma, "width": store.d, "solved": int(store.solved[b]),
        "rho_shifted": float(store.r[b]), "operations": int(store.operations[b]), "ids": ids,
        "alpha": (mass / copies)[location], "location": location,
        "keys": np.ascontiguousarray(store.x[b, :, :n].T.cpu().numpy()), "mass": mass, "values": _values(ledger, ids),
        "cold": _cold_state(store, b, ledger),
    }  # fmt: skip


def _values(ledger: Ledger, ids: Ids) -> Array:
    matrix = ledger.values.matrix(ids)
    return np.empty((len(ids), 0)) if matrix is None else matrix


def _cold_state(store: Store, b: int, ledger: Ledger) -> dict[str, Any]:
    ids = np.array(sorted(ledger.cold), dtype=np.int64)
    slots = [ledger.cold[token] for token in ids.tolist()]
    return {
        "ids": ids,
        "expiry": store.cold_expiry[b].cpu().numpy()[slots],
        "keys": np.ascontiguousarray(store.cold_x[b].T.cpu().numpy()[slots]),
        "values": _values(ledger, ids),
        "drift": float(store.drift[b]),
        "drift_low": float(store.drift_low[b]),
    }


def solve_alone(work: Work, row: int, mult: torch.Tensor, C: float, sigma: float) -> None:
    """Give one row of a work the masses and rho that SVDDMemory finds for its locations; raises NotConverged."""
    store, valid = work.store, work.valid[row] & (mult[row] > 0)
    b = int(work.rows[row])
    copies = mult[row][valid].cpu().numpy()
    keys = store.x[b][:, valid].T.cpu().numpy()
    state = SVDDMemory(C, sigma).fit(np.repeat(keys, copies, axis=0)).to_state()
    if len(state["mass"]) != len(copies):
        raise NotConverged("a memory of the batch could not be solved alone: its locations do not match")
    work.a[row] = 0.0
    work.a[row, valid] = torch.from_numpy(state["mass"]).to(work.a.device)
    work.r[row] = float(state["rho_shifted"])

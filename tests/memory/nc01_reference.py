"""The protected-read memory written slowly from its equations, as one physical matrix, and streams to feed it."""

from __future__ import annotations

import numpy as np
import torch

from memory.nc01.limits import PIN_RADIUS, RHO, ROOM


class Physical:
    """One bank: the matrix B, and (address, value, pin, expiry) of each protection; inverses of the Gram matrix."""

    def __init__(self, d_k, d_v, horizon):
        self.B, self.held, self.clock, self.horizon = np.zeros((d_k, d_v)), [], 0, horizon

    def parts(self):
        if not self.held:
            return np.zeros((len(self.B), 0)), np.zeros((0, len(self.B))), np.zeros_like(self.B)
        K = np.stack([entry[0] for entry in self.held], 1)
        inverse = np.linalg.inv(K.T @ K) @ K.T
        return K, inverse, inverse.T @ np.stack([entry[2] for entry in self.held])

    def step(self, k, v, alpha, beta):
        K, inverse, protected = self.parts()
        inside = K @ (inverse @ k)
        p, y, X = k - inside, protected.T @ k, self.B - protected
        tau2, pi2 = p @ p, inside @ inside
        g = 1 / (tau2 + RHO)
        bh = beta * (1 + pi2 * g)
        b = bh * v - (alpha * beta + (1 - alpha + alpha * beta * pi2) * g) * y
        radius, eta = np.sqrt(ROOM - (protected**2).sum()), 1 - bh * tau2
        room = radius * (np.sqrt((1 - alpha**2) * (1 - eta**2)) if eta <= alpha else 1 - alpha * eta)
        size = np.sqrt(tau2) * np.linalg.norm(b)
        sigma = 1.0 if size == 0 else min(1.0, room / size)
        self.B = protected + alpha * (X - bh * np.outer(p, p @ X)) + sigma * np.outer(p, b)
        self.clock += 1

    def boundary(self, r, v):
        self.held = [entry for entry in self.held if entry[3] > self.clock]
        w = self.B.T @ r
        u = v + (w - v) * min(1.0, PIN_RADIUS / np.linalg.norm(w - v))
        self.held.append((r, v, u, self.clock + self.horizon))
        K = np.stack([entry[0] for entry in self.held], 1)
        last = np.linalg.inv(K.T @ K)[:, -1]
        self.B = self.B + np.outer(K @ last, u - w)


def unit(array):
    return array / np.linalg.norm(array, axis=-1, keepdims=True)


def stream(banks, length, d_k=128, d_v=128, seed=0, dtype=torch.float64):
    """Unit keys and values, gates near 1 with some zero, tiny and zero-rate tokens: tensors k, v, alpha, beta."""
    rng = np.random.default_rng(seed)
    k, v = unit(rng.standard_normal((banks, length, d_k))), unit(rng.standard_normal((banks, length, d_v)))
    alpha, beta = rng.uniform(0.9, 0.999, (banks, length)), rng.uniform(size=(banks, length))
    alpha[:, 7::29], alpha[:, 11::31], k[:, 5::37], beta[:, 3::41] = 0.0, 1e-7, 0.0, 0.0
    return [torch.from_numpy(part).to(dtype) for part in (k, v, alpha, beta)]


def regimes(length, seeds, dtype):
    """Seven regimes x seeds as banks: free, correlated, conflict, saturated, forgetting, codec, Gram threshold."""
    parts = [_regime(kind, length, np.random.default_rng([seed, kind])) for kind in range(7) for seed in range(seeds)]
    return [torch.from_numpy(np.stack(part)).to(dtype) for part in zip(*parts, strict=True)]


def _regime(kind, length, rng):
    k, v = unit(rng.standard_normal((length, 128))), unit(rng.standard_normal((length, 128)))
    alpha, beta = np.full(length, 0.999), rng.uniform(0.2, 1.0, length)
    if kind == 1:
        k = unit(k + 1.5 * unit(rng.standard_normal(128)))
    elif kind == 2:
        k = unit(rng.standard_normal((12, 128)))[rng.integers(12, size=length)]
    elif kind == 3:
        v, alpha = 6 * v, np.full(length, 1 - 2**-12)
    elif kind == 4:
        alpha = rng.uniform(0.0, 1 - 2**-12, length)
    elif kind == 5:
        v = torch.from_numpy(v).to(torch.bfloat16).double().numpy()
        angle = np.arange(length)[:, None] / 10000 ** (np.arange(64) / 64)
        a, b = (
            unit(rng.standard_normal((8, 128)))[rng.integers(8, size=length)].reshape(length, 2, 64).transpose(1, 0, 2)
        )
        k = np.concatenate([a * np.cos(angle) - b * np.sin(angle), a * np.sin(angle) + b * np.cos(angle)], 1)
    elif kind == 6:
        share = rng.uniform(0.70, 0.80, length)[:, None]
        k = np.sqrt(share) * unit(rng.standard_normal(128)) + np.sqrt(1 - share) * k
    return unit(k) * (1 - 1e-7), v, alpha, beta

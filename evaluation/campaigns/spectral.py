"""The spectral retention example, its properties on random spectra, and a layer cut to its energy [SVDA; MATH D]."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray

from evaluation.campaigns.table import Findings, Progress, Row, Size, Status, at_least, at_most, equals, judged
from evaluation.published import SPECTRAL_PUBLISHED
from memory.spectral import (
    SpectralAttention,
    masked_scores,
    retained_directions,
    selected_scores,
    unit_rows,
)

SIGMA = (4.0, 2.0, 1.0, 0.5)
RHO = 0.9
ROWS = 6
GENERATOR = f"numpy default_rng(7).standard_normal, queries then keys, {ROWS} x 4"
SPECTRA = {"ci": 500, "evidence": 20_000}
REPEATS = {"ci": 3, "evidence": 30}


def run(size: Size, seed: int, progress: Progress) -> Findings:
    """All parts of the campaign."""
    found = example()
    progress("spectral", 0.2)
    found += properties(SPECTRA[size], seed)
    progress("spectral", 0.7)
    found += layer(REPEATS[size], seed)
    progress("spectral", 1.0)
    return found


def example() -> Findings:
    """The published example; the generator is our reading of "seed 7", confirmed by its digits."""
    sigma = torch.tensor(SIGMA, dtype=torch.float64)
    kept = retained_directions(sigma.numpy(), RHO)
    first = retained_directions(sigma.numpy(), 0.75).fraction
    rng = np.random.default_rng(7)
    queries, keys = (unit_rows(torch.from_numpy(rng.standard_normal((ROWS, len(SIGMA))))) for _ in range(2))
    whole = (queries * sigma) @ keys.mT / len(SIGMA) ** 0.5
    masked, selected = (form(queries, keys, sigma, kept.indices) for form in (masked_scores, selected_scores))
    narrow = [unit_rows(part[:, kept.indices]) for part in (queries, keys)]
    renormalised = (narrow[0] * sigma[kept.indices]) @ narrow[1].mT / len(SIGMA) ** 0.5
    ours = {
        "energy": kept.fraction or 0.0,
        "energy_first": first or 0.0,
        "masked_less_selected": _largest(masked - selected),
        "score_error": _largest(whole - masked),
        "row_change": float((whole.softmax(-1) - masked.softmax(-1)).abs().sum(-1).max()),
        "renormalised": _largest(renormalised - masked),
    }
    digits = {"renormalised": 5e-6, "masked_less_selected": 1e-15}
    rows = [_kept_row(kept.indices)]
    for name, value in ours.items():
        published = SPECTRAL_PUBLISHED[name]
        target = equals(float(published.value), digits.get(name, 5e-7))
        rows.append(judged(name.replace("_", " "), GENERATOR, value, target, published))
    error = at_most(ours["score_error"])
    bound = SIGMA[2] / len(SIGMA) ** 0.5
    rows.append(judged("score error against its bound", GENERATOR, ours["score_error"], at_most(bound)))
    rows.append(judged("row change against the score error", GENERATOR, ours["row_change"], error))
    return Findings(rows, [{"part": "example", **ours}])


def _kept_row(indices: NDArray[np.int64]) -> Row:
    published = SPECTRAL_PUBLISHED["kept"]
    ours = ", ".join(str(index) for index in indices)
    status: Status = "reproduced" if ours == published.value else "not reproduced"
    return Row("directions kept", GENERATOR, ours, published.value, published.source, "the same", status)


def properties(spectra: int, seed: int) -> Findings:
    """Random spectra that break the rule's definition, and the largest difference of masked from selected scores."""
    rng = np.random.default_rng([seed, 1])
    broken, worst = 0, 0.0
    for _ in range(spectra):
        sigma, rho = rng.standard_normal(rng.integers(1, 9)), rng.uniform(0.05, 1.0)
        kept = retained_directions(sigma, rho).indices
        energy = (sigma / np.abs(sigma).max()) ** 2
        held, need = energy[kept].sum(), rho * energy.sum()
        broken += int(held < need * (1 - 1e-12) or held - energy[kept].min() >= need * (1 + 1e-12))
    for _ in range(spectra // 20):
        d = int(rng.integers(2, 17))
        sigma = rng.standard_normal(d)
        queries, keys = (unit_rows(torch.from_numpy(rng.standard_normal((5, d)))) for _ in range(2))
        kept = retained_directions(sigma, 0.7).indices
        pair = [form(queries, keys, torch.from_numpy(sigma), kept) for form in (masked_scores, selected_scores)]
        worst = max(worst, _largest(pair[0] - pair[1]))
    conditions = f"{spectra:,} random spectra, widths 1 to 8"
    return Findings(
        [
            judged("spectra that do not keep the shortest sufficient prefix", conditions, broken, equals(0)),
            judged("masked less selected scores", f"{spectra // 20:,} spectra, widths 2 to 16", worst, at_most(1e-15)),
        ],
        [{"part": "properties", "spectra": spectra, "broken": broken, "masked_less_selected": worst}],
    )


def layer(repeats: int, seed: int) -> Findings:
    """A layer with a decaying spectrum cut at rho 0.9: numbers in use, key cache, processor time, equality."""
    torch.manual_seed(seed)
    module = SpectralAttention(256, 4).double().eval()
    with torch.no_grad():
        module.sigma.copy_(64 * 0.8 ** torch.arange(64.0) * torch.ones(4, 1))
    tokens = torch.randn(2, 256, 256, dtype=torch.float64)
    pruned = module.pruned(RHO)
    with torch.no_grad():
        gap = _largest(pruned(tokens) - module.masked(RHO)(tokens))
        seconds = [_least(partial(each, tokens), repeats) for each in (module, pruned)]
    whole = sum(parameter.numel() for parameter in module.parameters())
    conditions = "d_model 256, 4 heads of 64, spectrum 0.8^i, rho 0.9, 2 x 256 tokens"
    raw = {
        "part": "layer",
        "parameters": whole,
        "parameters_in_use": pruned.parameters_in_use,
        "cached_floats": pruned.cached_floats,
        "cached_floats_whole": 256,
        "seconds_whole": seconds[0],
        "seconds_pruned": seconds[1],
    }
    return Findings(
        [
            judged("cut layer less masked layer", conditions, gap, at_most(1e-13)),
            judged("key floats a token, whole over cut", conditions, 256 / pruned.cached_floats, at_least(2.0)),
            judged(
                "processor time, whole over cut",
                conditions,
                seconds[0] / seconds[1],
                at_least(1.0),
                reason="projections stay whole: a row is unit in its full width",
            ),
        ],
        [raw],
    )


def _largest(difference: torch.Tensor) -> float:
    return float(difference.abs().max())


def _least(call: Callable[[], object], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return min(times)

"""Spectral retention: the rule, its edge cases, the published example, and a layer that is cut to its energy."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from memory.contract import MemoryRefused
from memory.spectral import (
    SpectralAttention,
    masked_scores,
    retained_directions,
    selected_scores,
    unit_rows,
)

EXAMPLE = torch.tensor([4.0, 2.0, 1.0, 0.5], dtype=torch.float64)


def test_the_published_example_comes_out_to_its_digits() -> None:
    kept = retained_directions(EXAMPLE.numpy(), 0.9)
    assert kept.indices.tolist() == [0, 1]
    assert kept.fraction == pytest.approx(0.941176, abs=5e-7)
    assert retained_directions(EXAMPLE.numpy(), 0.75).fraction == pytest.approx(0.752941, abs=5e-7)
    rng = np.random.default_rng(7)
    queries, keys = (unit_rows(torch.from_numpy(rng.standard_normal((6, 4)))) for _ in range(2))
    whole = (queries * EXAMPLE) @ keys.mT / 2
    masked, selected = (form(queries, keys, EXAMPLE, kept.indices) for form in (masked_scores, selected_scores))
    assert torch.equal(masked, selected)
    assert float((whole - masked).abs().max()) == pytest.approx(0.370472, abs=5e-7)
    row_change = (whole.softmax(-1) - masked.softmax(-1)).abs().sum(-1).max()
    assert float(row_change) == pytest.approx(0.211509, abs=5e-7)
    again, narrow = unit_rows(queries[:, :2]), unit_rows(keys[:, :2])
    renormalised = (again * EXAMPLE[:2]) @ narrow.mT / 2
    assert float((renormalised - masked).abs().max()) == pytest.approx(1.70289, abs=5e-6)
    rescaled = masked * 2 / np.sqrt(2)
    assert float((rescaled - masked).abs().max()) == pytest.approx(0.380, abs=5e-4)


def test_twenty_thousand_random_spectra_keep_the_shortest_sufficient_prefix() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20_000):
        sigma = rng.standard_normal(rng.integers(1, 9)) * 10.0 ** rng.integers(-3, 4)
        rho = rng.uniform(0.05, 1.0)
        kept = retained_directions(sigma, rho)
        energy = (sigma / np.abs(sigma).max()) ** 2
        assert energy[kept.indices].sum() >= rho * energy.sum() * (1 - 1e-12)
        smallest = kept.indices[np.argmin(energy[kept.indices])]
        assert energy[kept.indices].sum() - energy[smallest] < rho * energy.sum() * (1 + 1e-12)
        assert kept.fraction == pytest.approx(energy[kept.indices].sum() / energy.sum())


@pytest.mark.parametrize("factor", [100.0, -3.0, 1e-150, 1e150])
def test_scaling_a_spectrum_changes_nothing(factor: float) -> None:
    rng = np.random.default_rng(1)
    for _ in range(200):
        sigma = rng.standard_normal(6)
        rho = float(rng.uniform(0.1, 0.99))
        assert (
            retained_directions(sigma, rho).indices.tolist()
            == retained_directions(factor * sigma, rho).indices.tolist()
        )


def test_everything_means_every_coordinate_other_than_zero() -> None:
    tiny = np.array([1.0, *[1e-9] * 50, 0.0])
    assert retained_directions(tiny, 1.0).indices.tolist() == list(range(51))
    assert retained_directions(tiny, 0.999999).indices.tolist() == [0]


def test_an_empty_spectrum_of_energy_keeps_nothing_and_has_no_share() -> None:
    kept = retained_directions([0.0, 0.0], 0.5)
    assert kept.indices.tolist() == []
    assert kept.indices.dtype == np.int64
    assert kept.fraction is None


def test_ties_go_to_the_lower_index_and_indices_come_sorted() -> None:
    assert retained_directions([1.0, -2.0, 2.0, 1.0], 0.8).indices.tolist() == [1, 2]
    assert retained_directions([1.0, 1.0, 1.0, 1.0], 0.5).indices.tolist() == [0, 1]
    assert retained_directions([0.1, 5.0, 3.0], 0.99).indices.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("sigma", "rho"),
    [([], 0.5), ([1.0, np.nan], 0.5), ([np.inf], 0.5), ([[1.0]], 0.5), ([1.0], 0.0), ([1.0], 1.1), ([1.0], np.nan)],
)
def test_what_is_no_spectrum_or_share_is_refused(sigma: list, rho: float) -> None:
    with pytest.raises(MemoryRefused, match="it must be"):
        retained_directions(sigma, rho)


def test_a_score_moves_by_no_more_than_the_largest_discarded_direction() -> None:
    torch.manual_seed(0)
    for _ in range(300):
        d = int(torch.randint(2, 9, (1,)))
        sigma = torch.randn(d, dtype=torch.float64)
        queries, keys = (unit_rows(torch.randn(5, d, dtype=torch.float64)) for _ in range(2))
        kept = retained_directions(sigma.numpy(), 0.7).indices
        whole = (queries * sigma) @ keys.mT / d**0.5
        masked, selected = (form(queries, keys, sigma, kept) for form in (masked_scores, selected_scores))
        torch.testing.assert_close(masked, selected, rtol=1e-14, atol=1e-15)
        gone = np.setdiff1d(np.arange(d), kept)
        change = float((whole - masked).abs().max())
        assert change <= (float(sigma[gone].abs().max()) if len(gone) else 0.0) / d**0.5 + 1e-15
        moved = (whole.softmax(-1) - masked.softmax(-1)).abs().sum(-1).max()
        assert float(moved) <= change + 1e-12


def layer() -> SpectralAttention:
    torch.manual_seed(3)
    module = SpectralAttention(16, 2).double()
    with torch.no_grad():
        module.sigma.copy_(torch.randn(2, 8).double() * torch.tensor([[1.0], [4.0]]).double())
        module.sigma[0, 1] = 0
    return module


@pytest.mark.parametrize("rho", [0.3, 0.9, 0.95, 1.0])
def test_a_pruned_layer_equals_the_masked_one(rho: float) -> None:
    module, tokens = layer(), torch.randn(3, 20, 16, dtype=torch.float64)
    pruned = module.pruned(rho)
    torch.testing.assert_close(pruned(tokens), module.masked(rho)(tokens), rtol=1e-13, atol=1e-14)
    whole = sum(parameter.numel() for parameter in module.parameters())
    assert pruned.parameters_in_use == whole - 16 + pruned.cached_floats
    assert pruned.cached_floats == sum(len(kept) for kept in module.kept(rho)) < 16


def test_heads_keep_different_numbers_of_directions() -> None:
    kept = layer().kept(0.9)
    assert len(kept[0]) != len(kept[1])


def test_a_head_without_energy_attends_to_all_of_the_past_alike() -> None:
    module, tokens = layer(), torch.randn(1, 6, 16, dtype=torch.float64)
    with torch.no_grad():
        module.sigma[0] = 0
    torch.testing.assert_close(module.pruned(1.0)(tokens), module(tokens), rtol=1e-13, atol=1e-14)


def test_nothing_later_changes_an_output() -> None:
    module, tokens = layer(), torch.randn(2, 12, 16, dtype=torch.float64)
    changed = torch.cat([tokens[:, :5], torch.randn(2, 7, 16, dtype=torch.float64)], 1)
    torch.testing.assert_close(module(changed)[:, :5], module(tokens)[:, :5], rtol=1e-13, atol=1e-14)


def test_the_layer_has_the_derivative_of_finite_differences() -> None:
    module = layer()
    tokens = torch.randn(1, 4, 16, dtype=torch.float64, requires_grad=True)

    def through(given: torch.Tensor, sigma: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(module, {"sigma": sigma}, (given,))

    assert torch.autograd.gradcheck(through, (tokens, module.sigma.detach().clone().requires_grad_()))


def test_heads_that_do_not_divide_the_width_are_refused() -> None:
    with pytest.raises(MemoryRefused, match="heads must divide"):
        SpectralAttention(16, 3)


def test_without_the_causal_mask_every_output_sees_every_token_and_the_cut_still_equals_the_mask() -> None:
    torch.manual_seed(4)
    module = SpectralAttention(16, 2, causal=False).double()
    with torch.no_grad():
        module.sigma.mul_(0.7 ** torch.arange(8.0))
    tokens = torch.randn(2, 12, 16, dtype=torch.float64)
    changed = tokens.clone()
    changed[:, -1] += 1
    assert bool(((module(tokens) - module(changed)).abs().amax(-1) > 1e-6).all())
    torch.testing.assert_close(module.pruned(0.8)(tokens), module.masked(0.8)(tokens), rtol=1e-13, atol=1e-14)

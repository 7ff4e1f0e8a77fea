"""The sequence models are causal, equal their recurrences, and train the same from the same seed."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from evaluation.errors import EvaluationError
from evaluation.prediction.measures import auroc
from evaluation.prediction.networks import NETWORKS, DeltaMixer, LinearMixer, network
from evaluation.prediction.training import CONTEXT, Hourly, Schedule, predict, train

SHORT = Schedule(steps=6, batch=4, rate=2e-3, check_every=2, patience=3)


def built(name: str, seed: int = 0, window: int | None = None) -> torch.nn.Module:
    torch.manual_seed(seed)
    return network(name, 3, window=window).eval()


def stays(seed: int, count: int = 8, n: int = 30, signal: float = 1.0) -> list[Hourly]:
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        inputs = rng.normal(size=(n, 3))
        found.append(Hourly(inputs, signal * inputs[:, 0] + rng.normal(size=n) > 0.5, np.ones(n, bool)))
    return found


@pytest.mark.parametrize("name", sorted(NETWORKS))
def test_a_logit_is_a_function_of_the_inputs_so_far(name: str) -> None:
    model, inputs = built(name), torch.randn(2, 40, 3, generator=torch.Generator().manual_seed(1))
    later = inputs.clone()
    later[:, 25:] = later[:, 25:].flip(1) + 1
    with torch.no_grad():
        one, two = model(inputs), model(later)
    torch.testing.assert_close(one[:, :25], two[:, :25], rtol=1e-5, atol=1e-5)
    assert not torch.allclose(one[:, 25:], two[:, 25:], atol=1e-3)


def test_windowed_softmax_forgets_what_left_the_window() -> None:
    model, inputs = built("softmax", window=5), torch.randn(1, 30, 3, generator=torch.Generator().manual_seed(2))
    earlier = inputs.clone()
    earlier[:, :10] += 1
    with torch.no_grad():
        one, two = model(inputs), model(earlier)
    torch.testing.assert_close(one[:, 14:], two[:, 14:])
    assert not torch.allclose(one[:, 13], two[:, 13], atol=1e-6)


def test_the_delta_rule_equals_its_recurrence() -> None:
    torch.manual_seed(3)
    mixer = DeltaMixer().double()
    tokens = torch.randn(1, 12, 32, dtype=torch.float64)
    queries, keys, values = mixer.split(tokens)
    beta = torch.sigmoid(mixer.rate(tokens)).transpose(1, 2)
    read = torch.zeros_like(values)
    for head in range(mixer.heads):
        state = torch.zeros(values.shape[-1], keys.shape[-1], dtype=torch.float64)
        for t in range(12):
            key = keys[0, head, t] / keys[0, head, t].norm()
            state = state + beta[0, head, t] * torch.outer(values[0, head, t] - state @ key, key)
            read[0, head, t] = state @ (queries[0, head, t] / queries[0, head, t].norm())
    torch.testing.assert_close(mixer(tokens), mixer.join(read))


def test_linear_attention_equals_its_recurrence() -> None:
    torch.manual_seed(4)
    mixer = LinearMixer().double()
    tokens = torch.randn(1, 9, 32, dtype=torch.float64)
    queries, keys, values = mixer.split(tokens)
    read = torch.zeros_like(values)
    for head in range(mixer.heads):
        top, below = torch.zeros(16, 16, dtype=torch.float64), torch.zeros(16, dtype=torch.float64)
        for t in range(9):
            feature = torch.nn.functional.elu(keys[0, head, t]) + 1
            top, below = top + torch.outer(values[0, head, t], feature), below + feature
            query = torch.nn.functional.elu(queries[0, head, t]) + 1
            read[0, head, t] = (top @ query) / (below @ query)
    torch.testing.assert_close(mixer(tokens), mixer.join(read))


def test_an_unknown_model_is_refused_with_the_known_ones() -> None:
    with pytest.raises(EvaluationError, match=r"unknown model 'rnn'; use one of .*lstm"):
        network("rnn", 3)


@pytest.mark.parametrize("name", ["gru", "softmax"])
def test_the_same_seed_trains_the_same_model_and_another_seed_another(name: str) -> None:
    one, two, three = (train(built(name), stays(0), stays(1), SHORT, seed) for seed in (5, 5, 6))
    inputs = stays(2)[0].inputs
    assert np.array_equal(predict(one, inputs), predict(two, inputs))
    assert not np.array_equal(predict(one, inputs), predict(three, inputs))


def test_training_learns_a_signal_in_the_hour_itself() -> None:
    schedule = dataclasses.replace(SHORT, steps=60, rate=1e-2, check_every=20)
    model, test = train(built("gru"), stays(0, 20, signal=4), stays(1, signal=4), schedule, 0), stays(2, 20, signal=4)
    found = auroc(np.concatenate([s.label for s in test]), np.concatenate([predict(model, s.inputs) for s in test]))
    assert found is not None
    assert found > 0.85


@pytest.mark.parametrize("positive", [False, True])
def test_training_hours_of_one_class_are_refused(positive: bool) -> None:
    single = [dataclasses.replace(stay, label=np.full(30, positive)) for stay in stays(0)]
    with pytest.raises(EvaluationError, match="a model needs both classes"):
        train(built("gru"), single, stays(1), SHORT, 0)


def test_hours_that_do_not_count_change_no_trained_parameter() -> None:
    half = [dataclasses.replace(stay, counts=np.arange(30) < 15) for stay in stays(0)]
    other = [dataclasses.replace(stay, label=np.where(stay.counts, stay.label, ~stay.label)) for stay in half]
    schedule = dataclasses.replace(SHORT, patience=None)
    one, two = (train(built("gru"), part, [], schedule, 1) for part in (half, other))
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))


@pytest.mark.parametrize("n", [1, 84, 168, 169, 252, 400])
def test_every_hour_of_a_long_stay_is_predicted_from_at_least_half_a_context(n: int) -> None:
    model = built("softmax")
    inputs = np.random.default_rng(0).normal(size=(n, 3))
    found = predict(model, inputs)
    assert found.shape == (n,)
    assert ((found > 0) & (found < 1)).all()
    with torch.no_grad():
        whole = torch.sigmoid(model(torch.from_numpy(inputs[:CONTEXT]).float().unsqueeze(0)))[0].numpy()
    np.testing.assert_allclose(found[:CONTEXT], whole, rtol=1e-6)

"""Offers see written tokens only; deletion is a replay with holes; ending a protection is no deletion."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from nc01_reference import stream

from memory.nc01 import (
    EventOffers,
    NC01Bank,
    NC01Refused,
    NoveltyOffers,
    RandomOffers,
    ResidualOffers,
    Stream,
    delete_by_replay,
)
from memory.nc01.limits import PIN_RADIUS

BANKS, LENGTH, D_K, D_V = 2, 150, 16, 6
EVENTS = torch.from_numpy(np.random.default_rng(0).uniform(size=(BANKS, LENGTH)) < 0.1)
POLICIES = {
    "novelty": lambda: NoveltyOffers(1.0),
    "event": lambda: EventOffers(EVENTS),
    "random": lambda: RandomOffers(3),
    "residual": ResidualOffers,
}


@pytest.fixture(autouse=True)
def _one_thread():
    torch.set_num_threads(1)


@pytest.fixture(params=sorted(POLICIES))
def policy(request):
    return POLICIES[request.param]


def fresh_bank():
    return NC01Bank(BANKS, D_K, D_V, 4, 12, 48)


def a_stream(seed=0):
    return stream(BANKS, LENGTH, D_K, D_V, seed)


def written(policy, path="segment"):
    bank = fresh_bank()
    run = bank.run(*a_stream(), None if policy is None else policy(), path=path)
    return bank, run


def test_offers_are_the_same_whatever_comes_after(policy):
    tokens, other = a_stream(), a_stream(9)
    mixed = [torch.cat((a[:, :72], b[:, 72:]), 1) for a, b in zip(tokens, other, strict=True)]
    first, second = fresh_bank().run(*tokens, policy()), fresh_bank().run(*mixed, policy())
    early = [decision for decision in first.decisions if decision.clock <= 72]
    assert early == [decision for decision in second.decisions if decision.clock <= 72]
    assert any(decision.token is not None for decision in early)


def test_every_offer_is_a_token_of_the_window_that_just_ended(policy):
    _, run = written(policy)
    for decision in run.decisions:
        assert decision.token is None or decision.clock - 12 <= decision.token < decision.clock


def test_each_policy_offers_what_its_name_says():
    k, v, alpha, beta = a_stream()
    bank = fresh_bank()
    bank.segment(*(part[:, :12] for part in (k, v, alpha, beta)))
    miss = torch.linalg.vector_norm(v[0, :12] - k[0, :12] @ bank.physical()[0], dim=1).argmax()
    assert written(ResidualOffers)[1].decisions[0].token == int(miss)
    summed = torch.exp(-torch.cdist(k[0, 12:24], k[0, :24]).square()).sum(1)
    assert written(POLICIES["novelty"])[1].decisions[2].token == 12 + int(summed.argmin())
    for decision in written(POLICIES["event"])[1].decisions:
        marks = EVENTS[decision.bank, decision.clock - 12 : decision.clock].nonzero()[:, 0].tolist()
        assert decision.token == (decision.clock - 12 + marks[-1] if marks else None)


def test_random_offers_follow_the_named_stream_and_not_the_place_in_the_batch():
    draws = []
    for streams in ((5, 8), (8, 5)):
        decisions = fresh_bank().run(*a_stream(), RandomOffers(0, streams)).decisions
        draws.append([[d.token for d in decisions if d.bank == bank] for bank in range(BANKS)])
    assert draws[0] == draws[1][::-1]
    assert draws[0][0] != draws[0][1]


def test_a_hole_is_never_offered(policy):
    present = torch.from_numpy(np.random.default_rng(1).uniform(size=(BANKS, LENGTH)) < 0.5)
    run = fresh_bank().run(*a_stream(), policy(), present=present)
    offered = [d for d in run.decisions if d.token is not None]
    assert offered
    assert all(present[d.bank, d.token] for d in offered)


@pytest.mark.parametrize("path", ["segment", "sequential"])
@pytest.mark.parametrize("places", [[0], [70, 71], [149], [3, 64, 100]])
def test_a_replay_equals_banks_that_never_saw_the_tokens(policy, places, path):
    bank, _ = written(policy, path)
    before = bank.digest()
    replay = delete_by_replay(bank, Stream(*a_stream()), [places, []], policy(), path=path)
    never, tokens = fresh_bank(), a_stream()
    present = torch.ones(BANKS, LENGTH, dtype=torch.bool)
    present[0, places] = False
    for part in tokens:
        part[0, places] = torch.nan
    never.run(*tokens, policy(), present=present, path=path)
    assert replay.bank.digest() == never.digest()
    assert replay.bank.digest()[1] == before[1]
    assert bank.digest() == before
    assert all(old.bank == 0 for old, _ in replay.changed)


def test_deleting_a_pinned_token_forgets_it_and_ending_its_protection_does_not():
    bank, run = written(ResidualOffers)
    pinned = next(d for d in reversed(run.decisions) if d.bank == 0 and d.outcome is None)
    k, v, _, _ = a_stream()
    key, value = k[:, pinned.token], v[0, pinned.token]

    def miss(memory):
        return float(torch.linalg.vector_norm(memory.read(key)[0] - value))

    ended = NC01Bank.from_state(bank.to_state())
    ended._state.expires[:] = ended.clock
    ended.boundary()
    replay = delete_by_replay(bank, Stream(*a_stream()), [[pinned.token], []], ResidualOffers())
    assert miss(bank) <= PIN_RADIUS + 1e-12
    assert len(ended.addresses()[0]) == 0
    assert abs(miss(ended) - miss(bank)) < 1e-12
    assert miss(replay.bank) > 0.2
    assert any(old.token == pinned.token for old, _ in replay.changed)


@pytest.mark.parametrize("deleted", [[[0]], [[LENGTH], []], [[-1], []], [[4, 4], []], [["4"], []], [[True], []]])
def test_places_that_hold_no_token_are_refused(deleted):
    bank, _ = written(None)
    before = bank.digest()
    with pytest.raises(NC01Refused):
        delete_by_replay(bank, Stream(*a_stream()), deleted)
    assert bank.digest() == before


@pytest.mark.parametrize("wrong", ["tokens", "policy", "path"])
def test_a_stream_that_does_not_reproduce_the_banks_is_refused(wrong):
    bank, _ = written(ResidualOffers)
    tokens = Stream(*a_stream(5 if wrong == "tokens" else 0))
    policy = None if wrong == "policy" else ResidualOffers()
    with pytest.raises(NC01Refused, match="does not reproduce"):
        delete_by_replay(bank, tokens, [[3], []], policy, path="sequential" if wrong == "path" else "segment")


@pytest.mark.parametrize("policy", [EventOffers(EVENTS[:, :-1]), EventOffers(EVENTS[:1]), RandomOffers(0, [1])])
def test_a_policy_made_for_other_banks_is_refused_before_the_first_token(policy):
    bank = fresh_bank()
    before = bank.digest()
    with pytest.raises(NC01Refused):
        bank.run(*a_stream(), policy)
    assert bank.digest() == before


def test_a_policy_that_has_not_seen_what_the_banks_have_is_refused():
    bank, _ = written(ResidualOffers)
    before = bank.digest()
    with pytest.raises(NC01Refused, match="policy"):
        bank.run(*a_stream(), ResidualOffers())
    assert bank.digest() == before

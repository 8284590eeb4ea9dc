"""When a client asks for the shards of a role."""

from __future__ import annotations

from types import MappingProxyType

import pytest

from sbredis.client._claiming import NOBODY, Claim, Standing, read_standing

HOLDER = Standing(MappingProxyType({0: 7}), 30.0, member=True, members=2)
CANDIDATE = Standing(NOBODY.shards, 25.0, member=True, members=2)
OTHER = Standing(NOBODY.shards, 25.0, members=8, listed=60)


def claim_of(standing: Standing, *, seconds: float = 30.0, chance: float = 0.0) -> Claim:
    claim = Claim("me", seconds)
    claim.asked(1000.0)
    claim.answered(standing, 1000.0, chance)
    return claim


@pytest.mark.parametrize(
    ("standing", "seconds", "chance", "after"),
    [
        (HOLDER, 30.0, 0.0, 10.0),
        (HOLDER._replace(seconds=4.0), 30.0, 0.0, 4.05),  # another holder may be dead by then
        (CANDIDATE, 30.0, 0.0, 20.0),
        (CANDIDATE._replace(seconds=4.0), 30.0, 1.0, 4.15),
        (CANDIDATE._replace(seconds=3000.0), 3600.0, 0.0, 40.0),  # the script forgets a candidate after a minute
        (OTHER, 30.0, 1.0, 90.0),
        (OTHER, 30.0, 0.0, 45.0),
        (OTHER._replace(listed=1), 30.0, 1.0, 30.0),
        (OTHER._replace(listed=64), 30.0, 1.0, 600.0),  # there may be more than are listed
    ],
)
def test_the_next_question_depends_on_the_answer(
    standing: Standing, seconds: float, chance: float, after: float
) -> None:
    claim = claim_of(standing, seconds=seconds, chance=chance)
    assert claim.ask_at == pytest.approx(1000.0 + after)


@pytest.mark.parametrize(
    ("standing", "call", "at"),
    [
        (CANDIDATE, b"2 me", 1001.0),
        (CANDIDATE, b"2 you me", 1001.0),
        (CANDIDATE, b"2 you", 1003.0),  # the called one may be dead
        (HOLDER, b"2 me", 1001.0),
        (HOLDER, b"0 you", 1010.0),
        (OTHER, b"4 you", 1045.0),
        (OTHER, b"4 you me", 1001.0),
        (OTHER, b"0 me", 1001.0),
        (OTHER, b"0 you", 1003.0),  # all who are called may be dead
        (OTHER, b"x you", 1045.0),
        (OTHER, b"", 1045.0),
        (NOBODY, b"1 you", 1015.0),
    ],
)
def test_a_call_concerns_those_whom_it_names(standing: Standing, call: bytes, at: float) -> None:
    claim = claim_of(standing)
    claim.heard(call, 1001.0, 0.0)
    assert claim.ask_at == at


def test_clients_that_are_not_called_ask_one_after_the_other_when_no_member_is_left() -> None:
    late = claim_of(OTHER)
    late.heard(b"0 you", 1001.0, 1.0)
    assert late.ask_at == 1033.0
    soon = claim_of(OTHER._replace(listed=1))
    soon.heard(b"0 you", 1001.0, 1.0)
    assert soon.ask_at == 1015.0  # it would have asked earlier than that anyway


@pytest.mark.parametrize("standing", [CANDIDATE, OTHER, HOLDER])
def test_a_call_that_comes_before_the_answer_is_not_lost(standing: Standing) -> None:
    claim = Claim("me", 30.0)
    claim.asked(1000.0)
    claim.heard(b"0 me", 1001.0, 0.0)
    claim.answered(standing, 1000.0, 0.0)
    assert (claim.ask_at == 1000.0) != standing.held
    claim.asked(1002.0)
    claim.answered(standing, 1002.0, 0.0)
    assert claim.ask_at > 1002.0


def test_a_gap_lets_members_look_again() -> None:
    for standing, at in ((HOLDER, 1001.5), (CANDIDATE, 1001.5), (OTHER, 1045.0)):
        claim = claim_of(standing)
        claim.missed(1001.0, 0.5)
        assert claim.ask_at == at


def test_a_claim_is_over_at_its_end_and_given_up_if_it_may_stand() -> None:
    claim = claim_of(HOLDER)
    assert not claim.over(1029.9)
    assert claim.over(1030.0)
    claim.lost()
    assert claim.over(1001.0)
    assert claim.ends()  # it is a member still
    assert not claim.ends()
    assert not claim_of(OTHER).ends()
    claim.asked(1002.0)
    assert claim.ends()  # the question may have been answered unheard
    claim.denied(1003.0)
    assert not claim.ends()


def test_a_reply_is_read() -> None:
    standing = read_standing([1500, 1, 2, 3, b"4 you", 0, 70, 5, 80])
    assert standing == Standing(MappingProxyType({0: 70, 5: 80}), 1.5, True, 2, 3, b"4 you")
    assert (standing.held, standing.fence) == (True, 80)
    assert (NOBODY.held, NOBODY.fence) == (False, 0)

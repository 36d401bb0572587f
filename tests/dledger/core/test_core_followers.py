"""The learners as their leader watches them: when a catch-up begins again."""

from __future__ import annotations

import pytest

from dledger.core.followers import Followers
from dledger.core.membership.catch_up import STALLED_AFTER_TIMEOUTS, Verdict
from dledger.core.membership.configuration_change import AddLearner
from tests.dledger.core.configurations import address_of
from tests.dledger.core.core_group import HEARTBEAT_S, TIMEOUT_S, Group

STALL_S = STALLED_AFTER_TIMEOUTS * TIMEOUT_S


def with_learner() -> Group:
    """n0 leads n0, n1 and n2, and n3 is its learner, which has caught up."""
    group = Group([[], [], []])
    group.join("n3")
    group.elect("n0")
    group.pass_time(2 * HEARTBEAT_S)
    group["n0"].take_writes()
    group["n0"].replica.propose_change([AddLearner("n3", address_of("n3"))])
    group.run()
    group.pass_time(2 * HEARTBEAT_S)
    return group


def followers(group: Group) -> Followers:
    return group["n0"].replica.followers


def verdict(group: Group) -> Verdict:
    return followers(group).catch_ups["n3"].verdict


def stalled() -> Group:
    """The learner lacks an entry, and has been silent for so long that it counts as stalled."""
    group = with_learner()
    group.silent = {"n3"}
    group.propose("n0", 1)
    group.pass_time(STALL_S + TIMEOUT_S)
    assert verdict(group) is Verdict.STALLED
    return group


def test_a_learner_that_was_given_up_gets_its_whole_time_again_when_it_is_watched_anew() -> None:
    group = stalled()
    began_at = group.now
    followers(group).restart_catch_up("n3", began_at)
    assert verdict(group) is Verdict.CATCHING_UP
    group.pass_time(STALL_S - 2 * HEARTBEAT_S)
    assert verdict(group) is Verdict.CATCHING_UP
    group.pass_time(4 * HEARTBEAT_S)
    assert verdict(group) is Verdict.STALLED


def test_a_learner_watched_anew_has_caught_up_once_it_has_what_the_log_held_then() -> None:
    group = stalled()
    group.propose("n0", 5)
    group.run()
    followers(group).restart_catch_up("n3", group.now)
    group.silent = set()
    group.pass_time(TIMEOUT_S)
    assert group["n3"].log == group["n0"].log
    assert verdict(group) is Verdict.CAUGHT_UP


def test_a_learner_that_once_caught_up_must_do_so_again_before_it_may_vote() -> None:
    group = with_learner()
    assert verdict(group) is Verdict.CAUGHT_UP
    group.silent = {"n3"}
    group.propose("n0", 1)
    group.run()
    followers(group).restart_catch_up("n3", group.now)
    group.pass_time(HEARTBEAT_S)
    assert verdict(group) is Verdict.CATCHING_UP


def test_a_learner_that_is_catching_up_is_not_given_more_time_by_another_call() -> None:
    group = stalled()
    followers(group).restart_catch_up("n3", group.now)
    for _ in range(2 * STALLED_AFTER_TIMEOUTS):
        followers(group).restart_catch_up("n3", group.now)
        group.pass_time(TIMEOUT_S)
        if verdict(group) is Verdict.STALLED:
            break
    else:
        pytest.fail("a learner that nothing reaches is watched for ever")


@pytest.mark.parametrize("member", ["n0", "n1", "n9"])
def test_only_learners_are_watched(member: str) -> None:
    group = with_learner()
    followers(group).restart_catch_up(member, group.now)
    assert followers(group).catch_ups.keys() == {"n3"}

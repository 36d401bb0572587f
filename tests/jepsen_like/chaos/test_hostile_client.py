"""The hostile client of a run: what it writes, and what tells of an election."""

from __future__ import annotations

import pytest

from jepsen_like.chance import Chance
from jepsen_like.chaos.hostile.attacks import ATTACKS
from jepsen_like.chaos.nemeses.catalogue import NEMESES
from jepsen_like.chaos.nemeses.hostile_client import PREFIX, UNSERVED_S, elections, unserved
from jepsen_like.report.told_run import GapRow


@pytest.mark.parametrize("name", list(ATTACKS))
def test_each_attack_writes_what_its_seed_says(name: str) -> None:
    written = [ATTACKS[name](Chance(seed, "hostile")) for seed in range(8)]
    assert all(written)
    assert written == [ATTACKS[name](Chance(seed, "hostile")) for seed in range(8)]


def test_the_nemesis_makes_each_attack_and_storms() -> None:
    kinds = {kind.name.removeprefix(PREFIX) for kind in NEMESES["hostile"].kinds}
    assert kinds == {*ATTACKS, "storm"}


def test_a_term_that_rose_tells_of_an_election() -> None:
    assert elections({"n0": 3, "n1": 3}, {"n0": 3, "n1": 4}) is not None
    assert elections({"n0": 3, "n1": 2}, {"n0": 3, "n1": 3}) is None
    assert elections({"n0": 3}, {}) is None


@pytest.mark.parametrize(
    ("kind", "longest_s", "is_told"),
    [
        ("hostile-storm", UNSERVED_S, True),
        ("hostile-storm", UNSERVED_S - 0.1, False),
        ("hostile-storm + isolate-leader", 2 * UNSERVED_S, False),
        ("kill-leader", 2 * UNSERVED_S, False),
    ],
)
def test_good_clients_that_wait_beside_a_hostile_one_alone_are_told(
    kind: str, longest_s: float, is_told: bool
) -> None:
    row = GapRow(kind, "writes", 1, 4, 0, 0.3, 0.5, longest_s)
    assert bool(unserved([row])) == is_told

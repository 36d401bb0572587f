import pytest

from bench.checking import LOADS, Load, made, measure


@pytest.mark.parametrize("load", LOADS, ids=lambda load: load.name)
def test_a_small_history_of_each_load_gets_its_verdict(load: Load) -> None:
    # No load drains its queues, so what nobody received yet leaves that verdict open.
    expected = "invalid" if load.wrong else "unknown" if load.model == "queue" else "valid"
    small = load._replace(operations=400, keys=min(load.keys, 4))
    assert measure(small)["verdict"] == expected


def test_a_load_is_the_same_in_every_run() -> None:
    load = LOADS[0]._replace(operations=100)
    assert made(load).operations == made(load).operations
    assert made(load, seed=8).operations != made(load).operations

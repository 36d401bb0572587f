"""Several clients of one group under one id are told of in the log."""

from __future__ import annotations

import logging
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.consumers.members import Consumers, Member
from broker.consumers.namesakes import TELL_S, Namesakes
from broker.serving.memberships import Client
from remoting.bodies.heartbeat import ConsumerData, MessageModel

WARNING = (
    "group g has several clients with the id '10.0.0.1@1\\n#7' (10.0.0.1:5001, 10.0.0.1:5002): "
    "they read the same queues; give each client an id of its own"
)


class Origin:
    def __init__(self, peer: str) -> None:
        self.peer = peer


def lines(caplog: pytest.LogCaptureFixture, namesakes: Namesakes, now: float) -> list[str]:
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        list(namesakes.look(now))
    return [record.getMessage() for record in caplog.records]


def test_two_connections_in_use_with_one_id_are_told_of_now_and_then(
    caplog: pytest.LogCaptureFixture,
) -> None:
    consumers = Consumers()
    namesakes = Namesakes(consumers)
    one, two = Origin("10.0.0.1:5001"), Origin("10.0.0.1:5002")

    def heartbeat(
        origin: Origin, now: float, model: MessageModel = MessageModel.CLUSTERING
    ) -> None:
        data = ConsumerData("g", message_model=model)
        consumers.register(origin, Member("10.0.0.1@1\n#7", now, data))  # type: ignore[arg-type]

    heartbeat(one, 0)
    heartbeat(two, 10)
    assert lines(caplog, namesakes, 20) == [], "it may have connected again"
    heartbeat(two, 40)
    assert lines(caplog, namesakes, 40) == []
    heartbeat(one, 41)
    assert lines(caplog, namesakes, 50) == [WARNING]
    assert lines(caplog, namesakes, 60) == []
    assert lines(caplog, namesakes, 50 + TELL_S) == [WARNING]
    for origin in (one, two):
        heartbeat(origin, 400, MessageModel.BROADCASTING)
    assert lines(caplog, namesakes, 1000) == [], "each of them reads all queues anyway"
    consumers.unregister(Client(cast(Any, one), "10.0.0.1@1\n#7"), "g")
    assert not consumers.namesakes


@given(
    st.lists(
        st.tuples(*(st.integers(0, 4), st.sampled_from("gh"), st.sampled_from("ab"), st.booleans()))
    )
)
def test_namesakes_are_the_connections_with_one_id(
    steps: list[tuple[int, str, str, bool]],
) -> None:
    consumers = Consumers()
    origins: list[Any] = [Origin(str(number)) for number in range(5)]
    model: set[tuple[int, str, str]] = set()
    for now, (number, group, client_id, comes) in enumerate(steps):
        if comes:
            consumers.register(origins[number], Member(client_id, now, ConsumerData(group)))
            model.add((number, group, client_id))
        else:
            consumers.unregister(Client(origins[number], client_id), group)
            model.discard((number, group, client_id))
        pairs = [(group, named) for _, group, named in model]
        assert {pair: len(found) for pair, found in consumers.namesakes.items()} == {
            pair: pairs.count(pair) for pair in pairs if pairs.count(pair) > 1
        }

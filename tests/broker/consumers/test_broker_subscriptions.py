"""Members of one group that subscribe to different things are noticed, and told of."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.consumers.differences import TELL_S, Differences
from broker.consumers.kinds import kind_of, words_of
from broker.consumers.members import Consumers, Member
from remoting.bodies.heartbeat import (
    ConsumerData,
    Heartbeat,
    MessageModel,
    SubscriptionData,
    encode_heartbeat,
)
from remoting.wire.codes import RequestCode
from tests.broker.one_broker import Client, running_broker
from tests.broker.replies.test_broker_replies import Origin


def data(
    *wanted: str, group: str = "g", model: MessageModel = MessageModel.CLUSTERING, version: int = 0
) -> ConsumerData:
    """What a member says, of "topic=expression"."""
    pairs = [one.partition("=") for one in wanted]
    subscriptions = [
        SubscriptionData(topic, text or "*", version=version) for topic, _, text in pairs
    ]
    return ConsumerData(group, message_model=model, subscriptions=subscriptions)


def test_what_means_the_same_is_of_one_kind() -> None:
    first = kind_of(data("T=a || b", "U=*", "%RETRY%g=*"))
    assert first == kind_of(data("U=", "T=b||a ||", version=7))
    assert first != kind_of(data("T=a", "U=*"))
    assert first != kind_of(data("T=a||b"))
    assert first != kind_of(data("T=a||b", "U", model=MessageModel.BROADCASTING))
    condition = data("T=a||b", "U")
    condition.subscriptions[0].expression_type = "SQL92"
    assert first != kind_of(condition)
    assert words_of(first) == "T=a||b, U=*"
    assert words_of(kind_of(data(model=MessageModel.BROADCASTING))) == "nothing (each gets all)"


MEMBERS = st.lists(
    st.tuples(
        st.sampled_from(("comes", "goes", "expires")),
        st.integers(0, 4),
        st.sampled_from(("T=a", "T=b", "U")),
    ),
    max_size=40,
)


@given(MEMBERS)
def test_a_group_differs_as_long_as_two_of_its_members_do(
    steps: list[tuple[str, int, str]],
) -> None:
    consumers, origins = Consumers(), [Origin() for _ in range(5)]
    model: dict[int, str] = {}
    for step, number, wanted in steps:
        origin = origins[number]
        if step == "comes":
            consumers.register(origin, Member(f"c{number}", 0, data(wanted)))
            model[number] = wanted
        elif step == "goes":
            consumers.drop_some(origin)
            model.pop(number, None)
        else:
            consumers.expire(1e9)
            model.clear()
        assert (consumers.differing == {"g"}) == (len(set(model.values())) > 1)
        group = consumers.group("g")
        counts = {} if group is None else {words_of(k): n for k, n in group.kinds.counts.items()}
        told = {"U": "U=*"}
        assert counts == {
            told.get(one, one): list(model.values()).count(one) for one in set(model.values())
        }


def test_the_log_tells_once_of_each_change_and_not_too_often(
    caplog: pytest.LogCaptureFixture,
) -> None:
    consumers = Consumers()
    differences = Differences(consumers)
    origins = [Origin() for _ in range(3)]

    def lines(now: float) -> list[str]:
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            list(differences.look(now))
        return [record.getMessage() for record in caplog.records]

    consumers.register(origins[0], Member("c0", 0, data("T=a")))
    consumers.register(origins[1], Member("c1", 0, data("T=a")))
    assert lines(0) == []
    consumers.register(origins[2], Member("c2", 0, data("T=b")))
    assert lines(10) == [
        "members of group g subscribe to different things, so that messages are missed: c2 and 0 "
        "more: T=b; c0 and 1 more: T=a; give all members the same subscriptions"
    ]
    assert lines(20) == []
    consumers.register(origins[2], Member("c2", 0, data("T=c")))
    assert lines(30) == [], "too soon"
    (line,) = lines(10 + TELL_S)
    assert "T=c" in line
    consumers.register(origins[2], Member("c2", 0, data("T=a")))
    assert lines(200) == []
    consumers.register(origins[2], Member("c2", 0, data("T=b")))
    assert len(lines(210)) == 1, "it differs once more"
    consumers.clear()
    differences.clear()
    assert lines(300) == []


def test_a_line_about_many_kinds_is_short(caplog: pytest.LogCaptureFixture) -> None:
    consumers = Consumers()
    for number in range(50):
        topics = [f"topic-{number}-{at}" for at in range(100)]
        consumers.register(Origin(), Member(f"c{number}", 0, data(*topics)))
    list(Differences(consumers).look(0))
    (record,) = caplog.records
    assert "and 47 other ways" in record.getMessage()
    assert len(record.getMessage()) < 800


async def test_operators_see_which_members_differ(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (broker, nursery):
        one, two = (Client(nursery, str(broker.config.address)) for _ in range(2))

        async def beat(client: Client, name: str, *wanted: str) -> None:
            body = encode_heartbeat(Heartbeat(name, [], [data(*wanted)]))
            assert (await client.ask(RequestCode.HEART_BEAT, body)).code == 0

        async def told() -> dict[str, Any]:
            code = RequestCode.GET_CONSUMER_CONNECTION_LIST
            found: dict[str, Any] = json.loads((await one.ask(code, consumerGroup="g")).body)
            return found

        async def figure() -> str:
            reply = await one.ask(RequestCode.GET_BROKER_RUNTIME_INFO)
            return str(json.loads(reply.body)["table"]["dledgerGroupsThatDiffer"])

        await beat(one, "c1", "T=a")
        await beat(two, "c2", "T=a", "%RETRY%g")
        assert "differentSubscriptions" not in await told()
        assert await figure() == "0"
        await beat(two, "c2", "T=b")
        assert (await told())["differentSubscriptions"] == [
            {
                "clientIds": [name],
                "members": 1,
                "messageModel": "CLUSTERING",
                "subscriptions": {"T": tag},
            }
            for name, tag in (("c1", "a"), ("c2", "b"))
        ]
        assert await figure() == "1"
        await beat(one, "c1", "T=b")
        assert "differentSubscriptions" not in await told()
        assert await figure() == "0"

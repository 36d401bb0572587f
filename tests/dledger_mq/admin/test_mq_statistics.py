"""What brokers have counted, as the administrator and the command tell it."""

from pathlib import Path

import pytest

from dledger_mq import Message, Producer, RequestRefused
from dledger_mq.admin.answers import Statistic, decode_statistic
from remoting.wire.errors import BodyMalformed
from tests.dledger_mq.real_group import real_group


async def test_an_operator_sees_how_much_comes_and_goes(tmp_path: Path) -> None:
    async with real_group(tmp_path) as group, Producer("p", client=group.client) as producer:
        for number in range(3):
            await producer.send(Message("T", b"%d" % number))
        found = await group.admin.statistics("TOPIC_PUT_NUMS", "T")
        assert [(name, one.minute.sum, one.day.sum) for name, one in found.items()] == [
            ("broker-a", 3, 3)
        ]
        assert isinstance(found["broker-a"], Statistic)
        assert await group.admin.statistics("TOPIC_PUT_NUMS", "U") == {}
        rows = await group.rows("stats", "TOPIC_PUT_NUMS", "T")
        assert [(row["broker"], row["last"], row["sum"]) for row in rows] == [
            *(("broker-a", "minute", 3), ("broker-a", "hour", 3), ("broker-a", "day", 3))
        ]
        piped = await group.command("stats", "TOPIC_PUT_NUMS", "T")
        assert piped.stdout.splitlines()[0].split("\t")[:3] == ["broker-a", "minute", "3"]
        nothing = await group.command("stats", "TOPIC_PUT_NUMS", "U")
        assert nothing.exit_code == 1
        assert len(nothing.stderr.splitlines()) == 1
        assert "no broker has counted TOPIC_PUT_NUMS for U" in nothing.stderr


async def test_a_leader_that_refuses_is_told_with_its_reason(tmp_path: Path) -> None:
    async with real_group(tmp_path) as group:
        with pytest.raises(RequestRefused, match="1 to 1024"):
            await group.admin.create_topic("T", queues=5000)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b'{"statsMinute":{"sum":1,"tps":1,"avgpt":1}}',
        b'{"statsMinute":{"sum":1,"tps":"x","avgpt":1},"statsHour":{},"statsDay":{}}',
    ],
)
def test_statistics_of_another_shape_are_refused(body: bytes) -> None:
    with pytest.raises(BodyMalformed):
        decode_statistic(body)

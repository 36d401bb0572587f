"""What clients told of a message, as the administrator and the command show it."""

from pathlib import Path

import pytest

from dledger_mq import Message, Producer
from dledger_mq.tracing.traces import trace_of
from remoting.message.topic_names import TRACE_TOPIC
from tests.dledger_mq.real_group import real_group
from tests.remoting.bodies.test_remoting_trace import AFTER, BEFORE, END, ID, PUB, body

STEPS = ["Pub", "EndTransaction", "SubBefore", "SubAfter"]


@pytest.mark.feature("F48")
async def test_an_operator_sees_the_life_of_a_message(tmp_path: Path) -> None:
    async with real_group(tmp_path, auto_create_topics=False) as group:
        assert await group.admin.trace(ID) == []
        nothing = await group.command("trace", ID)
        assert nothing.exit_code == 1
        assert f"no client has told of message {ID}" in nothing.stderr
        async with Producer("_INNER_TRACE_PRODUCER-shop", client=group.client) as tracer:
            # As Java's clients write them: the consumer's before the producer's.
            other = [*PUB[:5], "another", *PUB[6:]]
            for told in ([BEFORE, AFTER], [other, PUB, END], [PUB]):
                await tracer.send(Message(TRACE_TOPIC, body(*told), keys=f"{ID} another order-7"))
        steps = await group.admin.trace(ID)
        assert [step.kind for step in steps] == STEPS
        after = steps[-1]
        assert (after.group, after.at_ms) == ("billing", 1_700_000_000_142)
        rows = await group.rows("trace", ID)
        assert [(row["step"], row["group"], row["ms"]) for row in rows] == list(
            zip(STEPS, ("shop", "shop", "billing", "billing"), (3, None, None, 42), strict=True)
        )
        assert rows[-1]["details"] == {"keys": "order-7", "outcome": "failed"}
        piped = await group.command("trace", ID)
        assert piped.stdout.splitlines()[0].startswith("2023-11-14T22:13:20.000+00:00\tPub\tshop\t")


async def test_a_time_that_no_calendar_has_is_shown_as_none(tmp_path: Path) -> None:
    async with real_group(tmp_path) as group:
        async with Producer("tracer", client=group.client) as tracer:
            told = ["Pub", "9" * 19, *PUB[2:]]
            await tracer.send(Message("Traces", body(told), keys=ID))
        shown = await group.command("trace", ID, "--topic", "Traces")
        assert shown.stdout.startswith("-\tPub\t")


async def test_what_the_commands_send_and_consume_is_traced_if_they_are_told_to(
    tmp_path: Path,
) -> None:
    async with real_group(tmp_path) as group:
        sent = await group.command("send", "Orders", "hello", "--trace")
        message_id = sent.stdout.split()[0]
        consume = ("consume", "Orders", "--group", "billing", "--from-first", "--count", "1")
        await group.command(*consume, "--timeout", "20", "--trace")
        rows = await group.rows("trace", message_id)
        assert [(row["step"], row["group"]) for row in rows] == [
            ("Pub", "dledger-mq-send"),
            ("SubBefore", "billing"),
            ("SubAfter", "billing"),
        ]


def test_nothing_is_known_of_a_message_that_nobody_told_of() -> None:
    assert trace_of(ID, []) == []

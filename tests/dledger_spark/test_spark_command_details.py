"""The table of commands says what each command says, by the names that brokers have for it."""

from __future__ import annotations

import json
import random
from dataclasses import asdict
from typing import Any

import msgpack
import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed: run make setup-spark")

from broker.groups.commands import PutGroup
from broker.groups.config import ConsumerGroup
from broker.locks.commands import LockQueues
from broker.log.entry import encode_log_command
from broker.offsets.commands import CommitOffsets, CommittedOffset
from broker.pop.commands import AckPopped, HidePopped, PoppedMessage
from broker.resets.commands import ResetOffsets
from broker.settings.commands import ChangeSettings
from broker.topics.commands import PutTopic
from dledger import Entry
from remoting.bodies.topic_config import TopicConfig
from tests.dledger_spark.broker_script import ScriptedLog, Step, random_step
from tests.dledger_spark.test_spark_tables import facts_of

Row = dict[str, Any]
MESSAGE = PoppedMessage("billing", "A", 3, 17, 5000)


def commands_of(log: ScriptedLog) -> list[Row]:
    rows = facts_of(log, [])["commands"].to_pylist()
    return [{**row, "detail": json.loads(row["detail"])} for row in rows]


def row_of(body: bytes) -> Row:
    """The row of a command at the end of a log."""
    log = ScriptedLog()
    last = log.entries[-1]
    pos = last.body_pos + len(last.body)
    log.entries.append(Entry(last.index + 1, last.term, pos, 1, body))
    row = commands_of(log)[-1]
    assert row["index"] == last.index + 1
    return row


def plain(names: tuple[Any, ...]) -> Row:
    """A tuple of the broker's with names; tables call a queue's number `queue`."""
    told: Row = names._asdict()  # type: ignore[attr-defined]
    return {"queue" if name == "queue_id" else name: value for name, value in told.items()}


def test_the_configuration_of_a_topic_has_the_names_of_its_fields() -> None:
    config = TopicConfig("orders", 4, 8, 6, "SINGLE_TAG", 1, True, {"message.type": "FIFO"})
    row = row_of(encode_log_command(PutTopic(config, 7, max_topics=100)))
    assert row["detail"]["topic"] == asdict(config)
    assert (row["topic"], row["consumer_group"]) == ("orders", None)


def test_the_configuration_of_a_group_has_the_names_of_its_fields() -> None:
    config = ConsumerGroup("billing", retry_max_times=3, system_flag=2)
    row = row_of(encode_log_command(PutGroup(config, max_groups=100)))
    assert row["detail"]["group"] == config.as_dict()
    assert (row["topic"], row["consumer_group"]) == (None, "billing")


def test_many_offsets_have_the_names_of_an_offset() -> None:
    offsets = [CommittedOffset("billing", "A", queue, queue * 10) for queue in range(2)]
    row = row_of(encode_log_command(CommitOffsets(offsets, 7, 0)))
    assert row["detail"]["offsets"] == [plain(one) for one in offsets]
    assert (row["topic"], row["consumer_group"]) == (None, None)


def test_the_offsets_of_a_reset_name_the_queue() -> None:
    log = ScriptedLog()
    command = ResetOffsets("billing", "A", {0: 5, 3: 9}, 7, log.entries[-1].pos)
    detail = row_of(encode_log_command(command))["detail"]
    assert detail["offsets"] == [{"queue": 0, "offset": 5}, {"queue": 3, "offset": 9}]


def test_messages_that_were_popped_have_the_names_of_a_message() -> None:
    several = [MESSAGE, MESSAGE._replace(offset=18)]
    row = row_of(encode_log_command(AckPopped(several)))
    assert row["detail"]["messages"] == [plain(one) for one in several]
    assert (row["topic"], row["consumer_group"]) == (None, None)
    row = row_of(encode_log_command(HidePopped(MESSAGE, 6000, 7000)))
    assert row["detail"]["message"] == plain(MESSAGE)
    assert (row["topic"], row["consumer_group"]) == ("A", "billing")


def test_a_message_that_was_buried_has_the_names_of_a_message() -> None:
    log = ScriptedLog()
    log.run([Step("send"), Step("pop", 1), Step("bury")])
    row = commands_of(log)[-1]
    assert row["name"] == "bury popped"
    assert row["detail"]["message"].keys() == plain(MESSAGE).keys()
    assert row["topic"] == row["detail"]["message"]["topic"] is not None


def test_locked_queues_and_changed_settings_have_names() -> None:
    locked = row_of(encode_log_command(LockQueues("billing", "c1", True, 7, [("A", 2)])))
    assert locked["detail"]["queues"] == [{"topic": "A", "queue": 2}]
    changed = row_of(encode_log_command(ChangeSettings({"one": "1", "two": None}, 7)))
    values = [{"name": "one", "value": "1"}, {"name": "two", "value": None}]
    assert changed["detail"]["values"] == values


@pytest.mark.parametrize("queues", [[["A", 2, "later"]], ["A", 2, 3], 5, None])
def test_a_command_that_brokers_cannot_read_is_none(queues: Any) -> None:
    content = msgpack.packb([7, "billing", "c1", True, 7, queues])
    body = (len(content) + 8).to_bytes(4) + b"DLB\x01" + content
    log = ScriptedLog()
    before = commands_of(log)
    last = log.entries[-1]
    log.entries.append(Entry(last.index + 1, last.term, last.body_pos + len(last.body), 1, body))
    assert commands_of(log) == before


@pytest.mark.parametrize("seed", range(3))
def test_no_command_of_a_long_log_has_values_without_names(seed: int) -> None:
    chance = random.Random(seed)
    log = ScriptedLog()
    log.run([random_step(chance) for _ in range(200)])
    for row in commands_of(log):
        for name, value in row["detail"].items():
            several = value if isinstance(value, list) else []
            assert not any(isinstance(one, list) for one in several), (row["name"], name)
            assert len({type(one) for one in several}) <= 1, (row["name"], name)

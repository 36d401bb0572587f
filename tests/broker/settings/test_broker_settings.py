"""Settings that operators show and change while brokers run."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from broker.config import BrokerConfig
from broker.errors import SettingInvalid
from broker.features import REGISTRY, empty_state
from broker.log.entry import encode_log_command
from broker.log.state_snapshot import captured, restored
from broker.retention.keeper import LOG_KEEPER
from broker.retention.policy import Drop, RetentionPolicy
from broker.server import Broker
from broker.settings.changeable import CHANGEABLE, changed_config, judged_config
from broker.settings.commands import ChangeSettings
from broker.settings.settings import SETTINGS
from broker.settings.state import CHANGED_SETTINGS
from broker.transactions.policy import CheckPolicy
from dledger import ConfigInvalid, SnapshotPolicy
from nameserver.server import serve_nameserver
from remoting.bodies.heartbeat import ConsumerData, Heartbeat, encode_heartbeat
from remoting.bodies.table import decode_properties_text
from remoting.net.address import Address
from remoting.net.client import RemotingClient
from remoting.wire.codes import RequestCode, ResponseCode
from remoting.wire.command import Command
from tests.broker.delay.test_broker_delay import folded
from tests.broker.log.test_broker_fold import Log
from tests.broker.one_broker import START_MS, Client, Clock, running_broker, served, until
from tests.broker.retention.test_broker_retention import HOUR_MS, SMALL, looked, minimum, send
from tests.broker.serving.test_broker_roles import route
from tests.broker.three_brokers import group_of_three
from tests.broker.transactions.transacting_broker import transacting

CODE = RequestCode


async def change(client: Client, *lines: str) -> Command:
    """Change settings as mqadmin does."""
    return await client.ask(CODE.UPDATE_BROKER_CONFIG, "\n".join(lines).encode())


async def changed(client: Client, *lines: str) -> None:
    told = await change(client, *lines)
    assert (told.code, told.remark) == (0, None)


async def shown(client: Client) -> dict[str, str]:
    return decode_properties_text((await client.ask(CODE.GET_BROKER_CONFIG)).body)


def a_config(directory: Path = Path("/data")) -> BrokerConfig:
    listen = Address("127.0.0.1", 10911)
    return BrokerConfig(
        group="b", node_id="n0", peers={"n0": "127.0.0.1:1"}, listen=listen, directory=directory
    )


# --- the table ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(CHANGEABLE))
def test_each_setting_is_shown_as_it_may_be_given(name: str) -> None:
    setting = CHANGEABLE[name]
    started = a_config()
    text = setting.value_in(started)
    assert judged_config(started, {name: text}) == started
    assert setting.values


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("autoCreateTopicEnable", "yes"),
        ("brokerPermission", "7"),
        ("brokerPermission", "0"),
        ("deleteWhen", "24"),
        ("deleteWhen", ";"),
        ("deleteWhen", "four"),
        ("diskMaxUsedSpaceRatio", "9"),
        ("fileReservedTime", "0"),
        ("fileReservedTime", "-1"),
        ("fileReservedTime", "1.5"),
        ("fileReservedTime", "9" * 4301),
        ("fileReservedTime", "\u0663"),
        ("transactionTimeOut", "999"),
        ("transactionCheckMax", "many"),
        ("dledgerMaxTopics", "50001"),
    ],
)
def test_a_value_that_a_setting_cannot_have_is_not_read(name: str, text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        CHANGEABLE[name].read(text)


def test_times_in_milliseconds_are_exact() -> None:
    config = judged_config(a_config(), {"transactionTimeOut": "1500"})
    assert config.checks.after_s == 1.5
    assert CHANGEABLE["transactionTimeOut"].value_in(config) == "1500"
    assert config.checks.immunity_ms("") == 1500


def test_percents_that_contradict_the_command_line_are_refused_and_never_stop_a_member() -> None:
    started = a_config()
    values = {"diskMaxUsedSpaceRatio": "90"}  # above the 85 % of the command line
    with pytest.raises(SettingInvalid):
        judged_config(started, values)
    retention = changed_config(started, values).retention
    assert (retention.clean_percent, retention.force_percent, retention.refuse_percent) == (
        *(90, 90),
        90,
    )


def test_what_a_broker_of_another_version_has_set_is_passed_over() -> None:
    started = a_config()
    assert changed_config(started, {"unheardOf": "1", "fileReservedTime": "for ever"}) == started


def test_without_force_nothing_that_is_kept_long_enough_goes() -> None:
    policy = RetentionPolicy(drops_oldest=False)
    assert policy.due(95.0, 12) is Drop.EXPIRED


# --- the fold -------------------------------------------------------------------------------------


def test_settings_are_kept_in_snapshots_and_given_back() -> None:
    log, state = Log(), empty_state()
    log.append(encode_log_command(ChangeSettings({"a": "1", "b": "2"}, 5)))
    log.append(encode_log_command(ChangeSettings({"a": None, "c": "3"}, 4)))
    assert folded(log, state) == [True, True]
    settings = state[CHANGED_SETTINGS]
    assert settings.values == {"b": "2", "c": "3"}
    assert (settings.setting_changes, settings.settings_changed_ms) == (2, 5)
    assert restored(captured(state), REGISTRY) == state


@pytest.mark.parametrize(("values", "at_ms"), [({}, 1), ({"a": "1"}, -1), ({"a": 1}, 1)])
def test_a_malformed_change_is_passed_over(values: dict[str, str | None], at_ms: int) -> None:
    log, state = Log(), empty_state()
    command = ChangeSettings({"a": "1"}, at_ms)
    object.__setattr__(command, "values", values)  # no broker makes one without any
    log.append(encode_log_command(command))
    assert folded(log, state) == [False]


# --- one broker -----------------------------------------------------------------------------------


async def test_settings_are_shown_by_rocketmqs_names(tmp_path: Path) -> None:
    async with served(tmp_path) as client:
        told = await client.ask(CODE.GET_BROKER_CONFIG)
        assert json.loads(told.fields["version"]) == {
            "counter": 0,
            "stateVersion": 0,
            "timestamp": 0,
        }
        found = decode_properties_text(told.body)
        expected = {
            "autoCreateSubscriptionGroup": "true",
            "autoCreateTopicEnable": "true",
            "brokerId": "0",
            "brokerName": "broker-a",
            "brokerPermission": "6",
            "brokerRole": "SYNC_MASTER",
            "deleteWhen": "04",
            "diskMaxUsedSpaceRatio": "75",
            "fileReservedTime": "72",
            "maxMessageSize": "4194304",
            "messageDelayLevel": "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
            "rejectTransactionMessage": "false",
            "timerMaxDelaySec": "3456000",
            "transactionCheckInterval": "30000",
            "transactionTimeOut": "6000",
        }
        assert {name: found.get(name) for name in expected} == expected
        # What mqadmin exportConfigs reads.
        for name in ("brokerClusterName", "filterServerNums", "flushDiskType", "slaveReadEnable"):
            assert found[name]
        assert list(found) == sorted(found)


async def test_a_change_counts_at_once_and_after_a_restart_and_goes_back(tmp_path: Path) -> None:
    clock = Clock()
    async with served(tmp_path, clock=clock) as client:
        await changed(client, "# by mqadmin", "fileReservedTime=48", "deleteWhen = 03;15")
    async with served(tmp_path, clock=clock, retention=RetentionPolicy(keep_hours=24)) as client:
        now = await shown(client)
        assert (now["fileReservedTime"], now["deleteWhen"]) == ("48", "03;15")
        assert now["dledgerChangedSettings"] == "deleteWhen;fileReservedTime"
        version = json.loads((await client.ask(CODE.GET_BROKER_CONFIG)).fields["version"])
        assert (version["counter"], version["timestamp"]) == (1, START_MS)
        await changed(client, "fileReservedTime=", "deleteWhen=commandLine")
        now = await shown(client)
        assert (now["fileReservedTime"], now["deleteWhen"]) == ("24", "04")
        assert now["dledgerChangedSettings"] == ""


async def test_a_change_that_cannot_be_changes_nothing(tmp_path: Path) -> None:
    wrong: list[tuple[list[str], int, str]] = [
        (["fileReservedTime=0"], ResponseCode.INVALID_PARAMETER, "1 to 87840 hours"),
        (["unheardOf=1"], ResponseCode.INVALID_PARAMETER, "no setting 'unheardOf'"),
        (["rocketmqHome=/tmp;id"], ResponseCode.INVALID_PARAMETER, "no setting"),
        (["brokerName=b"], ResponseCode.NO_PERMISSION, "cannot be changed"),
        (["storePathRootDir=/"], ResponseCode.NO_PERMISSION, "cannot be changed"),
        (["diskMaxUsedSpaceRatio=90"], ResponseCode.INVALID_PARAMETER, "must not fall"),
        (["fileReservedTime"], ResponseCode.INVALID_PARAMETER, "name=value"),
        (["=1"], ResponseCode.INVALID_PARAMETER, "name=value"),
        ([], ResponseCode.INVALID_PARAMETER, "no setting is named"),
        (["# nothing"], ResponseCode.INVALID_PARAMETER, "no setting is named"),
        (["a=" + "x" * 17_000], ResponseCode.INVALID_PARAMETER, "at most"),
    ]
    async with running_broker(tmp_path) as (broker, nursery):
        client = Client(nursery, str(broker.config.address))
        for lines, code, words in wrong:
            before = await shown(client)
            applied = broker.node.status().applied
            told = await change(client, *(["deleteWhen=05"] if lines else []), *lines)
            if lines == ["# nothing"]:
                told = await change(client, *lines)
                await changed(client, "deleteWhen=")
                applied = broker.node.status().applied
            assert (told.code, words in (told.remark or "")) == (code, True), told.remark
            assert "nothing was changed" in (told.remark or "")
            assert await shown(client) == before
            assert broker.node.status().applied == applied


async def test_text_that_is_none_is_refused(tmp_path: Path) -> None:
    async with served(tmp_path) as client:
        told = await client.ask(CODE.UPDATE_BROKER_CONFIG, b"deleteWhen=\xff")
        assert told.code == ResponseCode.INVALID_PARAMETER


async def test_topics_and_groups_make_themselves_or_not(tmp_path: Path) -> None:
    async with served(tmp_path) as client:
        await changed(client, "autoCreateTopicEnable=false", "autoCreateSubscriptionGroup=false")
        assert (await client.send("T", b"x")).code == ResponseCode.TOPIC_NOT_EXIST
        missing = ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        assert (await client.heartbeat("c", "g", "T")).code == missing
        await client.ask(CODE.UPDATE_AND_CREATE_TOPIC, topic="T")
        assert (await client.send("T", b"x")).code == 0
        assert (await client.pull("T", 0)).code == missing
        # RocketMQ's own tools go on.
        assert (await client.pull("T", 0, consumerGroup="TOOLS_CONSUMER")).code == 0
        assert (await client.heartbeat("c", "CID_RMQ_SYS_x", "T")).code == 0
        await changed(client, "autoCreateTopicEnable=true", "autoCreateSubscriptionGroup=true")
        assert (await client.send("U", b"x")).code == 0
        assert (await client.heartbeat("c", "g", "T")).code == 0
        assert (await client.pull("T", 0)).code == 0


async def test_a_broker_without_a_permission_refuses_at_once(tmp_path: Path) -> None:
    async with served(tmp_path) as client:
        await client.send("T", b"x")
        (stored,) = await client.messages("T")
        await changed(client, "brokerPermission=4")
        told = await client.send("T", b"y")
        assert told.code == ResponseCode.NO_PERMISSION
        assert "broker-a] sending message is forbidden" in (told.remark or "")
        back: dict[str, Any] = {"group": "g", "offset": stored.physical_offset, "delayLevel": 0}
        assert (await client.ask(36, **back)).code == ResponseCode.NO_PERMISSION
        assert (await client.pull("T", 0)).code == 0
        await changed(client, "brokerPermission=2")
        assert (await client.send("T", b"z")).code == 0
        assert (await client.pull("T", 0)).code == ResponseCode.NO_PERMISSION
        await changed(client, "brokerPermission=6")
        assert len(await client.messages("T")) == 2


async def test_name_servers_route_what_the_brokers_permission_leaves(tmp_path: Path) -> None:
    async with trio.open_nursery() as nursery:
        nameserver = str(await nursery.start(partial(serve_nameserver, "127.0.0.1", 0)))
        asking = RemotingClient(nursery)
        async with running_broker(tmp_path, nameservers=(nameserver,)) as (broker, inner):
            client = Client(inner, str(broker.config.address))
            await client.send("T", b"x")

            async def permissions() -> list[int]:
                found = [await route(asking, nameserver, topic) for topic in ("T", "TBW102")]
                return [one.queues[0].permission for one in found if one is not None]

            assert await permissions() == [6, 7]
            await changed(client, "brokerPermission=4")  # answered when name servers know
            assert await permissions() == [4, 5]
            await changed(client, "brokerPermission=")
            assert await permissions() == [6, 7]
        nursery.cancel_scope.cancel()


async def test_sizes_delays_and_transactions_follow_their_settings(tmp_path: Path) -> None:
    async with transacting(tmp_path) as one:
        client = one.client
        await changed(client, "maxMessageSize=1024", "timerMaxDelaySec=60")
        assert (await client.send("T", bytes(1024))).code == 0
        assert (await client.send("T", bytes(1025))).code == ResponseCode.MESSAGE_ILLEGAL
        later = "TIMER_DELAY_SEC\x01{}\x02UNIQ_KEY\x01k\x02"
        assert (await client.send("T", b"x", i=later.format(60))).code == 0
        assert (await client.send("T", b"x", i=later.format(61))).code == 13
        await changed(client, "rejectTransactionMessage=true")
        assert (await one.half()).code == ResponseCode.NO_PERMISSION
        await changed(client, "rejectTransactionMessage=false")
        assert (await one.half()).code == 0


async def test_producers_are_asked_by_the_settings_of_now(tmp_path: Path) -> None:
    async with transacting(tmp_path, checks=CheckPolicy(after_s=3600)) as one:
        producer = one.another()
        await one.register(producer, "P")
        await changed(one.client, "transactionTimeOut=2000", "transactionCheckInterval=1500")
        assert (await one.half()).code == 0
        (half,) = one.transactions.halves.values()
        assert half.due_ms == START_MS + 2000
        one.clock.now_ms += 2000

        async def is_asked() -> bool:
            return bool(producer.notices)

        await until(is_asked)
        (half,) = one.transactions.halves.values()
        assert half.due_ms == START_MS + 3500


async def test_limits_follow_their_settings(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (broker, nursery):
        client = Client(nursery, str(broker.config.address))
        await client.send("T", b"x")
        topics = len(json.loads((await client.ask(21)).body)["topicConfigTable"])
        await changed(client, f"dledgerMaxTopics={topics}", "dledgerMaxOffsetTables=1")
        assert (await client.send("U", b"x")).code == ResponseCode.SYSTEM_BUSY
        await changed(client, f"dledgerMaxTopics={topics + 2}", "dledgerMaxGroups=1")
        assert (await client.send("U", b"x")).code == 0
        assert (await client.heartbeat("c", "g", "T")).code == 0
        assert (await client.heartbeat("c", "h", "T")).code == ResponseCode.SYSTEM_BUSY
        commit: dict[str, Any] = {"consumerGroup": "g", "queueId": 0, "commitOffset": 1}
        assert (await client.ask(15, topic="T", **commit)).code == 0
        assert (await client.ask(15, topic="U", **commit)).code == ResponseCode.SYSTEM_BUSY
        assert broker.parts[SETTINGS].now.limits == replace(
            broker.config.limits,
            max_topics=topics + 2,
            max_groups=1,
            max_offset_tables=1,
        )


async def test_members_are_told_of_one_another_or_not(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (broker, nursery):
        first, second = (Client(nursery, str(broker.config.address)) for _ in range(2))
        await changed(first, "notifyConsumerIdsChangedEnable=false")
        beat = encode_heartbeat(Heartbeat("c1", [], [ConsumerData("g")]))
        assert (await first.ask(34, beat)).code == 0
        await second.heartbeat("c2", "g", "T")
        assert first.notices == second.notices == []
        await changed(first, "notifyConsumerIdsChangedEnable=true")
        second.close()
        await until(lambda: _has(first, CODE.NOTIFY_CONSUMER_IDS_CHANGED))


async def _has(client: Client, code: int) -> bool:
    return any(notice.code == code for notice in client.notices)


# --- three brokers --------------------------------------------------------------------------------


@pytest.mark.feature("F22")
async def test_all_members_obey_and_a_new_leader_keeps_what_was_set(tmp_path: Path) -> None:
    clock = Clock()
    async with group_of_three(tmp_path, clock=clock, **SMALL) as group:
        leader, client = await group.leader()
        await changed(client, "fileReservedTime=2", "brokerPermission=6")
        others = [name for name in group.brokers if name != leader]

        async def all_show_it() -> bool:
            found = [
                await shown(Client(group.nursery, str(group.configs[name].listen)))
                for name in others
            ]
            assert {one["brokerRole"] for one in found} == {"SLAVE"}
            assert all(one["brokerId"] in "123" for one in found)
            return {one["fileReservedTime"] for one in found} == {"2"}

        await until(all_show_it)
        follower = Client(group.nursery, str(group.configs[others[0]].listen))
        told = await change(follower, "fileReservedTime=3")
        assert told.code == ResponseCode.SERVICE_NOT_AVAILABLE
        await send(client, 60)
        group.stop(leader)
        _second, client = await group.leader()
        clock.now_ms += 3 * HOUR_MS
        await send(client, 20)
        for broker in group.brokers.values():
            await looked(broker)
        assert await minimum(client) > 0
        assert (await shown(client))["fileReservedTime"] == "2"


async def test_the_disk_is_watched_by_the_settings_of_now(tmp_path: Path) -> None:
    async with running_broker(tmp_path, used_percent=lambda _folder: 60.0) as (broker, nursery):
        client = Client(nursery, str(broker.config.address))
        assert (await client.send("T", b"x")).code == 0
        lines = ["diskMaxUsedSpaceRatio=40", "diskSpaceCleanForciblyRatio=45"]
        await changed(client, *lines, "diskSpaceWarningLevelRatio=50")
        await _looked(broker)
        assert (await client.send("T", b"x")).code == ResponseCode.SERVICE_NOT_AVAILABLE
        await changed(client, "diskSpaceWarningLevelRatio=70")
        await _looked(broker)
        assert (await client.send("T", b"x")).code == 0


async def _looked(broker: Broker) -> None:
    await broker.parts[LOG_KEEPER].look()


def test_the_page_names_each_setting_with_its_values() -> None:
    page = Path(__file__).parents[3] / "docs" / "settings.md"
    rows = dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \|", page.read_text(), re.MULTILINE))
    assert rows == {name: setting.values for name, setting in CHANGEABLE.items()}


# --- settings that are read again -----------------------------------------------------------------


async def test_settings_of_the_start_are_taken_over_where_operators_changed_none(
    tmp_path: Path,
) -> None:
    async with running_broker(tmp_path) as (broker, nursery):
        client = Client(nursery, str(broker.config.address))
        await changed(client, "fileReservedTime=48")
        wanted = replace(
            broker.config,
            retention=RetentionPolicy(keep_hours=5, refuse_percent=95),
            checks=CheckPolicy(max_checks=3),
            auto_create_topics=False,
            prefer="n0",
            snapshots=SnapshotPolicy(every_entries=7),
            max_connections=1,
        )
        broker.reconfigure(wanted)
        now = broker.parts[SETTINGS].now
        assert (now.retention.keep_hours, now.retention.refuse_percent) == (48, 95)
        assert (now.checks.max_checks, now.auto_create_topics) == (3, False)
        assert now.max_connections is None, "only a start takes this over"
        assert broker.node.config.preferred_leader == "n0"
        assert broker.node.config.snapshots.every_entries == 7
        await changed(client, "fileReservedTime=")
        assert broker.parts[SETTINGS].now.retention.keep_hours == 5
        assert (await client.send("Unknown", b"x")).code == ResponseCode.TOPIC_NOT_EXIST
        with pytest.raises(ConfigInvalid, match="n9 is not one of"):
            broker.reconfigure(replace(wanted, prefer="n9", auto_create_topics=True))
        assert not broker.parts[SETTINGS].now.auto_create_topics

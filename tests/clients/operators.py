"""What operators must be able to do with RocketMQ's own `mqadmin`."""

import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from remoting.message.message_id import message_id
from tests.clients.client_script import Failed
from tests.clients.mqadmin import Expected

if TYPE_CHECKING:
    from tests.clients.scenarios import Place
    from tests.clients.toolchains import Client

MESSAGES = 20
SUCCESS = r"(?i)success"

AT_WORK = (
    Expected("clusterList", r"DefaultCluster\s+broker-a\s+0\s+\d+\.\d+\.\d+\.\d+:\d+\s+V4_9_8"),
    Expected("clusterList -m", r"(?m)^DefaultCluster\s+broker-a\s+\d+\s+\d+\s+[1-9]\d*\s+[1-9]"),
    Expected("topicList", r"(?m)^{topic}$"),
    Expected("topicList -c", r"(?m)^DefaultCluster\s+{topic}\s+{group}\s"),
    Expected("topicClusterList -t {topic}", r"(?m)^DefaultCluster$"),
    Expected("topicRoute -t {topic}", r'"readQueueNums"\s*:\s*4(?s:.)*"writeQueueNums"\s*:\s*4'),
    Expected("topicStatus -t {topic}", r"(?m)(^broker-a\s+[0-3]\s+0\s+[1-9]\d*\s+20\d\d-.*\n){4}"),
    Expected("producerConnection -g {topic}-senders -t {topic}", r"127\.0\.0\.1:\d+\s+JAVA\s+V"),
    Expected("consumerConnection -g {group}", r"JAVA(?s:.)*{topic}\s+\*(?s:.)*CLUSTERING"),
    Expected("consumerStatus -g {group}", r"Rebalance OK"),
    Expected("consumerStatus -g {group} -s", r"(?m)^1\s+\S+@\S+\s+V"),
    Expected("consumerProgress", r"(?m)^{group}\s+1\s+V\S+\s+PUSH\s+CLUSTERING\s+\d+\s+\d+"),
    Expected(
        "brokerStatus -b {address}",
        r"msgGetTotalTodayNow\s*:\s*[1-9](?s:.*)putTps\s*:\s*[\d.]+ [\d.]*[1-9]",
    ),
    Expected("brokerConsumeStats -b {address}", r"(?m)(^{topic}\s+{group}\s+broker-a\s.*\n){4}"),
    Expected("statsAll -t {topic}", r"(?m)^{topic}\s+{group}\s+\d+\s+\d+\.\d+"),
    Expected("consumerProgress -g {group}", r"Consume TPS: (\d+\.)?\d*[1-9]"),
)

# Of version 5 only.
PRODUCERS = Expected("producer -b {address}", r"group \({topic}-senders\) instance : clientId=\S+@")


def looks_at_clients_at_work(place: "Place", client: "Client") -> str:
    """All that shows a topic while it is used; the numbers are as sent."""
    mqadmin = place.mqadmin(client)
    with (
        place.consuming(client, "--steady") as reader,
        place.sending(client, "steady", "--pause", "0.1") as sender,
    ):
        reader.wait_until_ready()
        commands = AT_WORK if client == "java4" else (*AT_WORK, PRODUCERS)
        for expected in commands:
            mqadmin.until(expected)
        sender.kill()
        sent = [line for line in sender.words() if line.startswith("acked ")]
        in_queues = re.findall(
            r"(?m)^broker-a\s+\d+\s+0\s+(\d+)\s", mqadmin.told("topicStatus -t {topic}")
        )
        stored = sum(map(int, in_queues))
        # The last send may have been on its way when its sender was killed.
        if not len(sent) <= stored <= len(sent) + 1:
            raise Failed(f"{len(sent)} were acknowledged, topicStatus counts {stored}")
        mqadmin.until(Expected("consumerProgress -g {group}", r"Diff Total: 0\b"))
    return f"{len(commands)} commands; {stored} messages sent, stored and consumed"


def finds_messages(place: "Place", client: "Client") -> str:
    """By key, by unique key, by the place in the log, and by the place in a queue."""
    mqadmin = place.mqadmin(client)
    place.send(client, "sync", "--count", str(MESSAGES))
    topic = place.topic
    row = r"(?m)^([0-9A-F]{32,56})\s+(\d+)\s+(\d+)\s*$"
    unique, queue, offset = mqadmin.until(
        Expected(f"queryMsgByKey -t {{topic}} -k {topic}-7", row)
    ).groups()
    is_it = rf"Keys:\s+\[{topic}-7\]"
    by_unique_key = f"queryMsgByUniqueKey -t {{topic}} -i {unique}"
    mqadmin.check(Expected(by_unique_key, is_it))
    stored = r"CommitLog Offset:\s+(\d+)(?s:.)*Store Host:\s+([\d.]+):(\d+)"
    position, host, port = mqadmin.check(Expected(by_unique_key, stored)).groups()
    offset_id = message_id(host, int(port), int(position))
    of_topic = "" if client == "java4" else "-t {topic} "
    mqadmin.check(Expected(f"queryMsgById {of_topic}-i {offset_id}", is_it))
    by_offset = f"queryMsgByOffset -t {{topic}} -b broker-a -i {queue} -o {offset}"
    mqadmin.check(Expected(by_offset, is_it))
    in_queue = f"queryCq -t {{topic}} -q {queue} -i {offset} -c 1 -b {{address}}"
    mqadmin.check(Expected(in_queue, rf"physicOffset=(?i:{position}), physicSize=\d+"))
    printed = mqadmin.told("printMsg -t {topic} -d true")
    keys = set(re.findall(rf"KEYS=({topic}-\d+)\b", printed))
    if len(keys) != MESSAGES or "Exception" in printed:
        raise Failed(f"printMsg: {len(keys)} of {MESSAGES} keys")
    by_queue = f"printMsgByQueue -t {{topic}} -a broker-a -i {queue} -p true -d true -f true"
    mqadmin.check(Expected(by_queue, rf"KEYS={topic}-7\b"))
    sent = r"broker-a\s+\d\s+SEND_OK\s+(\w+)"
    traced = "sendMessage -t {topic} -p hello -k theirs -c blue -m true"
    sent_id = mqadmin.check(Expected(traced, sent))[1]
    mqadmin.until(Expected("queryMsgByKey -t {topic} -k theirs", row))
    if client == "java5":  # that of version 4 ends before it has sent its trace
        mqadmin.until(Expected(f"queryMsgTraceById -i {sent_id}", r"(?m)^Pub\s.*success"))
    every = 4 * (MESSAGES + 1)  # it takes a quarter of each of four queues
    taken = mqadmin.told(f"consumeMessage -t {{topic}} -g {topic}-peek -c {every}")
    if taken.count("MSGID:") != MESSAGES + 1:
        raise Failed(f"consumeMessage: {taken.count('MSGID:')} of {MESSAGES + 1}")
    mqadmin.check(
        Expected("checkMsgSendRT -t {topic} -a 3 -s 128", r"(broker-a\s+\d\s+true\s.*\s){3}")
    )
    return f"{MESSAGES} messages, one of them by 6 commands, all of them by 3"


def moves_groups(place: "Place", client: "Client") -> str:
    """To the end, to the beginning, to a time, and to the place of another group."""
    mqadmin = place.mqadmin(client)
    place.send(client, "sync", "--count", str(MESSAGES))
    with place.consuming(client, "--expect", str(MESSAGES)) as reader:
        reader.succeed(60)
    lag = "consumerProgress -g {group}"
    mqadmin.until(Expected(lag, r"Diff Total: 0\b"))
    place.send(client, "sync", "--count", "5")
    mqadmin.check_all(
        (
            Expected(lag, r"Diff Total: 5\b"),
            Expected("updateSubGroup -c DefaultCluster -g {group}-too", SUCCESS),
            Expected(
                "cloneGroupOffset -s {group} -d {group}-too -t {topic} -o true",
                r"clone group offset success",
            ),
            Expected("skipAccumulatedMessage -g {group} -t {topic} -f true", r"#offset"),
            Expected(lag, r"Diff Total: 0\b"),
            Expected("resetOffsetByTime -g {group} -t {topic} -s 0 -f true", r"#offset"),
            Expected(lag, rf"Diff Total: {MESSAGES + 5}\b"),
            Expected("resetOffsetByTime -g {group} -t {topic} -s now -f true", r"#offset"),
            Expected(lag, r"Diff Total: 0\b"),
        )
    )
    copied = re.findall(
        rf"(?m)^{place.topic}\s+{place.group}-too\s+broker-a\s+\d\s+\d+\s+(\d+)\s",
        mqadmin.told("brokerConsumeStats -b {address} -l 0"),
    )
    if sum(map(int, copied)) != MESSAGES:
        raise Failed(f"brokerConsumeStats: the copy of a group stands at {copied}")
    return f"{MESSAGES + 5} messages: the lag went from 5 to 0, 25 and 0, that of a copy stayed"


def shows_traces_of_dledger_mq(place: "Place", client: "Client") -> str:
    """What the producer and the consumer of this project wrote is read like Java's."""
    words = place.cluster.command("send", place.topic, "hello", "--keys", "k", "--trace").split()
    consume = ("consume", place.topic, "--group", place.group, "--from-first", "--count", "1")
    place.cluster.command(*consume, "--timeout", "25", "--trace")
    shown = r"(?m)^Pub\s+dledger-mq-send\s.*success(?s:.)*^Sub\s+{group}\s.*success"
    place.mqadmin(client).until(Expected(f"queryMsgTraceById -i {words[0]}", shown))
    return "its sending and its consumption"


def has_a_consumer_consume(place: "Place", client: "Client") -> str:
    """What a running consumer makes of a stored message (309), found by either of its ids.

    The consumer gets it again, its offset stays, and a client that is not there is named.
    """
    mqadmin = place.mqadmin(client)
    with place.consuming(client, "--steady") as reader:
        reader.wait_until_ready()
        place.send(client, "sync", "--count", str(MESSAGES))
        key = f"{place.topic}-7"

        def times() -> int:
            return sum(line.startswith(f"took {key} ") for line in reader.words())

        mqadmin.until(Expected("consumerProgress -g {group}", r"Diff Total: 0\b"))
        if times() != 1:
            raise Failed(f"{key} came {times()} times before it was asked for")
        [client_id] = mqadmin.until(
            Expected("consumerConnection -g {group}", r"(?m)^(\S+@\S+)\s+127\.")
        ).groups()
        row = r"(?m)^([0-9A-F]{32,56})\s+\d+\s+\d+\s*$"
        unique = mqadmin.until(Expected(f"queryMsgByKey -t {{topic}} -k {key}", row))[1]
        found = mqadmin.check(
            Expected(
                f"queryMsgByUniqueKey -t {{topic}} -i {unique}",
                r"CommitLog Offset:\s+(\d+)(?s:.)*Store Host:\s+([\d.]+):(\d+)",
            )
        )
        offset_id = message_id(found[2], int(found[3]), int(found[1]))
        of_topic = "" if client == "java4" else "-t {topic} "
        by_ids = (
            f"queryMsgById {of_topic}-i {offset_id}",
            f"queryMsgByUniqueKey -t {{topic}} -i {unique}",
        )
        consumed = (
            r"ConsumeMessageDirectlyResult \[order=false, autoCommit=true, "
            r"consumeResult=CR_SUCCESS, remark=null, spentTimeMills=\d+\]"
        )
        for asked, command in enumerate(by_ids, 1):
            mqadmin.check(Expected(f"{command} -g {{group}} -d {client_id}", consumed))
            if times() != 1 + asked:
                raise Failed(f"{key} came {times()} times, {asked} of them for {command}")
        absent = Expected(f"{by_ids[0]} -g {{group}} -d absent@1", r"Exception(?s:.)*not online")
        mqadmin.check(absent)
        mqadmin.check(Expected("consumerProgress -g {group}", r"Diff Total: 0\b"))
    return f"{key} came again for each of 2 commands"


def changes_topics_and_groups(place: "Place", client: "Client") -> str:
    """Makes, changes, shows and removes them; what is gone is gone."""
    mqadmin = place.mqadmin(client)
    perm = r"perm from {} to {} in \S+ success"
    number = mqadmin.check_all(
        (
            Expected("updateTopic -c DefaultCluster -t {topic}-new -r 3 -w 3", SUCCESS),
            Expected("topicRoute -t {topic}-new", r'"perm"\s*:\s*6(?s:.)*"writeQueueNums"\s*:\s*3'),
            Expected("updateTopic -b {address} -t {topic}-new -r 5 -w 5", SUCCESS),
            Expected("topicStatus -t {topic}-new", r"(?m)(^broker-a\s+\d\s+0\s+0.*\n){5}"),
            Expected("updateTopicPerm -c DefaultCluster -t {topic}-new -p 4", perm.format(6, 4)),
            Expected("topicRoute -t {topic}-new", r'"perm"\s*:\s*4'),
            Expected("updateTopicPerm -b {address} -t {topic}-new -p 2", perm.format(4, 2)),
            Expected("allocateMQ -t {topic} -i 10.0.0.1,10.0.0.2", r'(?s)("queueId":\d.*){4}'),
            Expected("updateOrderConf -t {topic} -m put -v broker-a:4", SUCCESS),
            Expected("updateOrderConf -t {topic} -m get", r"orderConf=\[broker-a:4\]"),
            Expected("topicRoute -t {topic}", r'"orderTopicConf"\s*:\s*"broker-a:4"'),
            Expected("updateOrderConf -t {topic} -m delete", SUCCESS),
            Expected("updateKvConfig -s {topic} -k a -v 1", SUCCESS),
            Expected("deleteKvConfig -s {topic} -k a", SUCCESS),
            Expected("updateSubGroup -c DefaultCluster -g {group}-new -r 3 -q 2", SUCCESS),
            Expected("getConsumerConfig -g {group}-new", r"retryMaxTimes\s+=\s+3\s"),
            Expected("deleteSubGroup -c DefaultCluster -g {group}-new -r true", SUCCESS),
            Expected("getConsumerConfig -g {group}-new", r"\A\s*\Z"),
            Expected("deleteTopic -c DefaultCluster -t {topic}-new", r"from NameServer success"),
            Expected("topicStatus -t {topic}-new", r"Exception(?s:.)*CODE: 17 "),
        )
    )
    if client == "java5":
        topics, groups = place.folder / "topics.json", place.folder / "groups.json"
        listed = {"topicName": f"{place.topic}-listed", "readQueueNums": 7, "writeQueueNums": 7}
        topics.write_text(json.dumps([{**listed, "perm": 6}]))
        groups.write_text(json.dumps([{"groupName": f"{place.group}-listed", "retryMaxTimes": 3}]))
        number += mqadmin.check_all(
            (
                Expected(f"updateTopicList -b {{address}} -f {topics}", SUCCESS),
                Expected("topicRoute -t {topic}-listed", r'"readQueueNums"\s*:\s*7'),
                Expected(f"updateSubGroupList -b {{address}} -f {groups}", SUCCESS),
                Expected("getConsumerConfig -g {group}-listed", r"retryMaxTimes\s+=\s+3\s"),
            )
        )
    return f"{number} commands"


def looks_after_brokers(place: "Place", client: "Client") -> str:
    """Settings, cleaning, and what only one version has; what is not served is refused in words."""
    mqadmin = place.mqadmin(client)
    size = r"maxMessageSize\s+=\s+{}\s"
    commands = [
        Expected("getBrokerConfig -b {address}", size.format(4194304)),
        Expected("updateBrokerConfig -b {address} -k maxMessageSize -v 4194303", SUCCESS),
        Expected("getBrokerConfig -c DefaultCluster", size.format(4194303)),
        Expected("updateBrokerConfig -c DefaultCluster -k maxMessageSize -v 4194304", SUCCESS),
        Expected(
            "updateBrokerConfig -b {address} -k noSuchThing -v 1", r"Exception(?s:.)*CODE: 29 "
        ),
        Expected("getNamesrvConfig", r"brokerTimeoutSeconds\s+=\s+120"),
        Expected("updateNamesrvConfig -k a -v b", r"Exception(?s:.)*CODE: 16 "),
        Expected("cleanUnusedTopic -c DefaultCluster", r"^success"),
        Expected("cleanExpiredCQ -c DefaultCluster", r"^success"),
        Expected("deleteExpiredCommitLog -c DefaultCluster", r"^success"),
        Expected("sendMsgStatus -b broker-a -s 128 -c 2", r"(?s)(SEND_OK.*){2}"),
        Expected("exportMetadata -c DefaultCluster -f .", r"export \./metadata\.json success"),
        Expected("exportConfigs -c DefaultCluster -f .", r"export \./configs\.json success"),
        Expected("exportMetrics -c DefaultCluster -f .", r"export \./metrics\.json success"),
    ]
    if client == "java4":
        commands += [
            Expected("clusterAclConfigVersion -b {address}", r"Exception(?s:.)*CODE: 3 "),
        ]
    else:
        commands += [
            Expected("haStatus -b {address}", r"#SlaveNum\s+2\s"),
            Expected(
                "setConsumeMode -b {address} -t {topic} -g {group} -m POP -q 2",
                r"consume mode\[POP\] popShareQueueNum\[2\]",
            ),
            Expected("setConsumeMode -b {address} -t {topic} -g {group} -m PULL", r"mode\[PULL\]"),
            Expected("getUser -b {address} -u a", r"Exception(?s:.)*there is no access control"),
            Expected("getBrokerEpoch -b broker-a", r"Exception(?s:.)*there is no controller"),
        ]
    return f"{mqadmin.check_all(commands)} commands"


def closes_a_broker_for_sends(place: "Place", client: "Client") -> str:
    """Until it is opened again, routes say that it cannot be written to."""
    mqadmin = place.mqadmin(client)
    readable = Expected("topicRoute -t {topic}", r'"perm"\s*:\s*4')
    try:
        mqadmin.check(Expected("wipeWritePerm -b broker-a", r"OK, [1-9]"))
        mqadmin.check(readable)
    finally:
        mqadmin.check(Expected("addWritePerm -b broker-a", r"OK, [1-9]"))
    mqadmin.check(readable._replace(pattern=r'"perm"\s*:\s*6'))
    place.send(client)
    return "closed, opened, and sent"


# How users and rules are shown; a line ends after blanks.
ALICE = r"(?m:^alice +{} +Normal +{} *$)"
RULE = r"(?m:^User:alice +Custom +{} +\[{}\] +\[{}\] +{} *$)"
ALLOWED_IN_GROUP = RULE.format(r"Group:g\*", "Pub, Sub", "127.0.0.1/32", "Allow")
ALLOWED_IN_TOPIC = RULE.format("Topic:{topic}", "Pub, Sub", "127.0.0.1/32", "Allow")
DENIED_IN_TOPIC = RULE.format("Topic:{topic}", "Pub", "", "Deny")
TWICE = r"(?:.*success\.\s){2}"

# For two groups; they change both, or the one at an address.
ON_USERS = (
    Expected("createUser -c DefaultCluster -u alice -p alices-secret -t Normal", TWICE),
    Expected("listUser -b {last}", ALICE.format("null", "enable")),
    Expected("getUser -c DefaultCluster -u alice", ALICE.format("alices-secret", "enable")),
    Expected("updateUser -b {address} -u alice -s disable", SUCCESS),
    Expected("getUser -b {address} -u alice", ALICE.format("alices-secret", "disable")),
    Expected("getUser -b {last} -u alice", ALICE.format("alices-secret", "enable")),
    Expected(
        "createAcl -c DefaultCluster -s User:alice -r Topic:{topic},Group:g* -a Pub,Sub -d Allow "
        "-i 127.0.0.1",
        TWICE,
    ),
    Expected("getAcl -b {last} -s User:alice", ALLOWED_IN_TOPIC),
    Expected("listAcl -b {last}", ALLOWED_IN_GROUP),
    Expected("updateAcl -b {address} -s User:alice -r Topic:{topic} -a Pub -d Deny", SUCCESS),
    Expected("getAcl -b {address} -s User:alice", DENIED_IN_TOPIC),
    Expected("listAcl -b {last}", ALLOWED_IN_TOPIC),
    Expected("copyUser -f {address} -t {last} -u alice", SUCCESS),
    Expected("getUser -b {last} -u alice", ALICE.format("alices-secret", "disable")),
    Expected("copyAcl -f {address} -t {last} -s User:alice", SUCCESS),
    Expected("getAcl -b {last} -s User:alice", DENIED_IN_TOPIC),
    Expected("deleteAcl -c DefaultCluster -s User:alice -r Topic:{topic}", TWICE),
    Expected("getAcl -b {last} -s User:alice", rf"\A(?!(?s:.)*Topic:)(?s:.)*{ALLOWED_IN_GROUP}"),
    Expected("deleteUser -c DefaultCluster -u alice", TWICE),
    Expected("listUser -c DefaultCluster", r"\A(?!(?s:.)*alice)"),
    Expected("getUser -b {last} -u alice", r"\A\s*\Z"),
)

WITH_A_WRONG_SECRET = (
    Expected("listUser -b {address}", r"Exception(?s:.)*CODE: 16 "),
    Expected("createUser -b {address} -u alice -p alices-secret", r"Exception(?s:.)*CODE: 16 "),
)

Operation = Callable[["Place", "Client"], str]

OPERATIONS: dict[str, Operation] = {
    "looks at clients at work": looks_at_clients_at_work,
    "finds messages": finds_messages,
    "shows traces of dledger_mq": shows_traces_of_dledger_mq,
    "has a consumer consume": has_a_consumer_consume,
    "moves groups": moves_groups,
    "changes topics and groups": changes_topics_and_groups,
    "looks after brokers": looks_after_brokers,
}

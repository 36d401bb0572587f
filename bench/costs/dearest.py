"""The costliest requests of each code that a broker answers, by the reason of their cost."""

from __future__ import annotations

import base64
from typing import Any, Final

from bench.costs.dear import Dear, by_code, dear
from bench.costs.full_broker import (
    CLIENT,
    CROWD,
    DEAR_CONDITION,
    DUE_MS,
    FLYING,
    GROUP,
    KEY,
    KEYED,
    LARGE,
    LITE,
    LITES,
    TEXTS,
    TOPIC,
    WIDE,
    FullBroker,
    pop_fields,
    pull_fields,
    recall_handle,
    send,
)
from broker.dead_letters.request import MAX_IDS, MAX_LETTERS
from broker.groups.processor import MAX_GROUPS_AT_ONCE
from broker.topics.processor import MAX_TOPICS_AT_ONCE
from remoting.bodies.access import MAX_ENTRIES, MAX_NEEDS, AskedNeed, encode_needs
from remoting.bodies.consumer_group import MAX_LOCKED_QUEUES
from remoting.bodies.heartbeat import MAX_HEARTBEAT_BYTES
from remoting.bodies.pop import MAX_ACKS, MAX_BITS
from remoting.message.batch import MAX_BATCH_MESSAGES, BatchMessage, encode_batch_body
from remoting.message.message_id import message_id
from remoting.wire.codes import RequestCode
from remoting.wire.command import Command
from remoting.wire.loose_json import SMALL, compact_json

CODE: Final = RequestCode

_LONG_RUN: Final = "".join(f"p{number}\x01v\x02" for number in range(3000))


def dearest_requests(full: FullBroker) -> dict[int, dict[str, Command]]:
    """Return the costliest requests of each code; none affects the next ones much."""
    return by_code(
        [
            *_lists(),
            *_inspections(full),
            *_offsets(full),
            *_messages(full),
            *_pops(full),
            *_lites(full),
            *_clients(full),
            *_changes(),
            *_deletions(),
        ]
    )


def _messages(full: FullBroker) -> list[Dear]:
    large_body = bytes(full.fullness.large_bytes)
    plain = send(TOPIC, b"x").fields
    batch = encode_batch_body([BatchMessage(b"x")] * MAX_BATCH_MESSAGES)
    long_fields = {
        **{"producerGroup": "p", "topic": TOPIC, "defaultTopic": "TBW102", "queueId": "0"},
        **{"defaultTopicQueueNums": "4", "sysFlag": "0", "bornTimestamp": "1", "flag": "0"},
        **{"reconsumeTimes": "0", "unitMode": "false", "batch": "false", "properties": _LONG_RUN},
    }
    asked = {**plain, "b": "r_REPLY_TOPIC", "i": f"REPLY_TO_CLIENT\x01{_client(0)}\x02{_LONG_RUN}"}
    long_asked = {**long_fields, "topic": "r_REPLY_TOPIC", "properties": asked["i"]}
    back = {"group": GROUP, "offset": str(full.large_position), "originTopic": LARGE}
    pull = pull_fields(WIDE)
    condition = {"subscription": DEAR_CONDITION, "expressionType": "SQL92"}
    pulls = {
        "messages that almost meet a condition": pull_fields(TEXTS) | condition,
        "many messages": pull_fields(KEYED),
        "a large message": pull_fields(LARGE),
        "many tags": {**pull, "subscription": "||".join(f"t{n}" for n in range(256))},
    }
    search = {
        **{"topic": LARGE, "key": KEY, "maxNum": "64", "beginTimestamp": "0"},
        **{"endTimestamp": str(1 << 62)},
    }
    redrive = {
        **{"consumerGroup": GROUP, "queueId": "0", "beginOffset": "0", "dryRun": "false"},
        "maxMsgNums": str(MAX_LETTERS),
    }
    ids = compact_json({"msgIds": [f"{number:032}" for number in range(MAX_IDS)]}).encode()
    recall = recall_handle(LARGE, DUE_MS, "nobody")
    half = {"producerGroup": CROWD, "commitOrRollback": "8"}
    half["tranStateTableOffset"] = str(full.fullness.transactions - 1)
    return [
        dear("many properties", CODE.SEND_MESSAGE, b"x", **long_fields),
        dear("a large message", CODE.SEND_MESSAGE, large_body, **{**long_fields, "properties": ""}),
        dear("many properties", CODE.SEND_MESSAGE_V2, b"x", **{**plain, "i": _LONG_RUN}),
        dear("a large message", CODE.SEND_MESSAGE_V2, large_body, **plain),
        dear("many messages", CODE.SEND_BATCH_MESSAGE, batch, **{**plain, "m": "true"}),
        dear("many properties", CODE.SEND_REPLY_MESSAGE, large_body, **long_asked),
        dear("many properties", CODE.SEND_REPLY_MESSAGE_V2, large_body, **asked),
        dear("a large message", CODE.CONSUMER_SEND_MSG_BACK, **{**back, "delayLevel": "0"}),
        *(dear(name, CODE.PULL_MESSAGE, **fields) for name, fields in pulls.items()),
        *(dear(name, CODE.LITE_PULL_MESSAGE, **fields) for name, fields in pulls.items()),
        dear("large messages", CODE.QUERY_MESSAGE, **search),
        dear("many messages", CODE.QUERY_MESSAGE, **{**search, "topic": KEYED}),
        dear(
            "many messages of another time",
            CODE.QUERY_MESSAGE,
            **{**search, "topic": KEYED, "endTimestamp": "1"},
        ),
        dear("a large message", CODE.VIEW_MESSAGE_BY_ID, offset=full.large_position),
        dear("large messages of one time", CODE.RECALL_MESSAGE, topic=LARGE, recallHandle=recall),
        dear(
            "many messages of one time",
            CODE.RECALL_MESSAGE,
            topic=TOPIC,
            recallHandle=recall_handle(TOPIC, DUE_MS + 1, "nobody"),
        ),
        dear(
            "an open one",
            CODE.END_TRANSACTION,
            **{**half, "commitLogOffset": str(full.half_position)},
        ),
        dear(
            "one of a large message",
            CODE.END_TRANSACTION,
            **{**half, "commitLogOffset": str(full.large_position)},
        ),
        dear(
            "a large message",
            CODE.RESUME_CHECK_HALF_MESSAGE,
            msgId=message_id("127.0.0.1", 1, full.large_position),
        ),
        dear("large messages", CODE.REDRIVE_DEAD_LETTERS, ids, **redrive),
        dear("all of them", CODE.REDRIVE_DEAD_LETTERS, **redrive),
    ]


def _client(number: int) -> str:
    return f"10.0.0.1@{number}#0"


def _listed(part: str, count: int) -> str:
    """Return `count` parts with different numbers for `%d`."""
    return ",".join([part % number for number in range(count)])


def _heartbeat(members: str) -> bytes:
    return f'{{"clientID":"{CLIENT}",{members}}}'.encode()


def _clients(full: FullBroker) -> list[Dear]:
    wanted = min(1000, full.fullness.subscriptions)
    subscriptions = _listed('{"topic":"t%d","subString":"a||b","subVersion":1}', wanted)
    conditions = ",".join(
        f'{{"topic":"t{n}","expressionType":"SQL92","subString":"{DEAR_CONDITION} OR b > {n}"}}'
        for n in range(4)
    )
    surrogates = '"x":["\\ud800",' + "[]," * (SMALL.values // 2 - 100) + "1]"
    group = f'"consumerDataSet":[{{"groupName":"{CROWD}","subscriptionDataSet":['
    of_crowd = {"consumerGroup": CROWD}
    queues = _listed('{"topic":"t%d","brokerName":"broker-a","queueId":0}', MAX_LOCKED_QUEUES)
    lock = f'{{"consumerGroup":"g2","clientId":"{CLIENT}","mqSet":[{queues}]}}'.encode()
    configuration = {
        **{"clientId": CLIENT, "group": GROUP},
        "subscriptionData": {
            **{"topic": TOPIC, "subString": DEAR_CONDITION, "expressionType": "SQL92"}
        },
    }
    one_condition = compact_json(configuration).encode()
    question = {
        **{"consumerGroup": CROWD, "topic": WIDE, "clientId": _client(0)},
        **{"strategyName": "AVG", "messageModel": "CLUSTERING"},
    }
    return [
        dear("subscriptions", CODE.HEART_BEAT, _heartbeat(f"{group}{subscriptions}]}}]")),
        dear("conditions", CODE.HEART_BEAT, _heartbeat(f"{group}{conditions}]}}]")),
        dear(
            "consumer groups",
            CODE.HEART_BEAT,
            _heartbeat(f'"consumerDataSet":[{_listed("""{"groupName":"h%d"}""", 1000)}]'),
        ),
        dear(
            "producer groups",
            CODE.HEART_BEAT,
            _heartbeat(f'"producerDataSet":[{_listed("""{"groupName":"p%d"}""", 1000)}]'),
        ),
        dear("values", CODE.HEART_BEAT, _heartbeat(surrogates)),
        dear(
            "one text",
            CODE.HEART_BEAT,
            _heartbeat('"x":"' + "\\ud83d\\ude00" * (MAX_HEARTBEAT_BYTES // 12 - 10) + '"'),
        ),
        dear("a condition", CODE.CHECK_CLIENT_CONFIG, one_condition),
        dear("clients", CODE.GET_CONSUMER_LIST_BY_GROUP, **of_crowd),
        dear("clients", CODE.GET_CONSUMER_CONNECTION_LIST, **of_crowd),
        dear("clients", CODE.GET_PRODUCER_CONNECTION_LIST, producerGroup=CROWD),
        dear("clients", CODE.GET_ALL_PRODUCER_INFO),
        dear("queues", CODE.LOCK_BATCH_MQ, lock),
        dear("queues", CODE.UNLOCK_BATCH_MQ, lock),
        dear("queues and clients", CODE.QUERY_ASSIGNMENT, compact_json(question).encode()),
        dear(
            "clients",
            CODE.GET_CONSUMER_RUNNING_INFO,
            **{"consumerGroup": CROWD, "clientId": _client(full.fullness.clients - 1)},
        ),
        dear(
            "clients and a large message",
            CODE.CONSUME_MESSAGE_DIRECTLY,
            **{"consumerGroup": CROWD, "clientId": _client(full.fullness.clients - 1)},
            msgId=message_id("127.0.0.1", 1, full.large_position),
        ),
        dear(
            "clients",
            CODE.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
            topic=TOPIC,
            group=CROWD,
            clientAddr="",
        ),
        dear(
            "any", CODE.UNREGISTER_CLIENT, clientID=CLIENT, consumerGroup=CROWD, producerGroup=CROWD
        ),
    ]


def _offsets(full: FullBroker) -> list[Dear]:
    of_queue: dict[str, Any] = {"topic": KEYED, "queueId": 0}
    at = {**of_queue, "timestamp": full.now_ms + 1, "boundaryType": "UPPER"}
    return [
        dear(
            "one that is not known", CODE.QUERY_CONSUMER_OFFSET, **of_queue, consumerGroup="nobody"
        ),
        dear(
            "a new one",
            CODE.UPDATE_CONSUMER_OFFSET,
            **{"topic": WIDE, "queueId": 0, "consumerGroup": GROUP, "commitOffset": 2},
        ),
        dear("many messages", CODE.SEARCH_OFFSET_BY_TIMESTAMP, **at),
        dear("any", CODE.GET_MAX_OFFSET, **of_queue),
        dear("any", CODE.GET_MIN_OFFSET, **of_queue),
        dear("any", CODE.GET_EARLIEST_MSG_STORETIME, **of_queue),
        dear("offsets", CODE.GET_ALL_CONSUMER_OFFSET),
        dear(
            "queues",
            CODE.INVOKE_BROKER_TO_RESET_OFFSET,
            **{"group": GROUP, "topic": WIDE, "timestamp": full.now_ms, "isForce": "true"},
        ),
        dear("topics", CODE.CLONE_GROUP_OFFSET, srcGroup=GROUP, destGroup="g1"),
    ]


def _pops(full: FullBroker) -> list[Dear]:
    condition = {"exp": DEAR_CONDITION, "expType": "SQL92"}
    first = full.popped.get("startOffsetInfo", "0 0 0").rpartition(" ")[2]
    popped = {
        **{"consumerGroup": GROUP, "topic": FLYING, "queueId": "0", "offset": first},
        "extraInfo": f"0 {full.popped.get('popTime', '1')} 3600000 0 0 broker-a 0 0",
    }
    of_popped = {"c": GROUP, "t": FLYING, "r": "0", "so": 0, "q": 0, "rq": 0, "it": 3600000}
    of_popped["pt"] = int(full.popped.get("popTime", "1"))
    bits = {**of_popped, "b": base64.b64encode(b"\xff" * (min(MAX_ACKS, MAX_BITS) // 8)).decode()}
    acks = [{**of_popped, "so": number, "b": "AQ=="} for number in range(1500)]
    return [
        dear("queues", CODE.POP_MESSAGE, **pop_fields(WIDE)),
        dear(
            "messages that almost meet a condition",
            CODE.POP_MESSAGE,
            **(pop_fields(TEXTS) | condition),
        ),
        dear("messages that are out", CODE.POP_MESSAGE, **pop_fields(FLYING)),
        dear("those that wait", CODE.POP_MESSAGE, **pop_fields("t1")),
        dear("queues", CODE.PEEK_MESSAGE, **pop_fields(WIDE)),
        dear("messages that are out", CODE.PEEK_MESSAGE, **pop_fields(FLYING)),
        dear("large messages", CODE.PEEK_MESSAGE, **pop_fields(LARGE)),
        dear("queues", CODE.NOTIFICATION, **pop_fields(WIDE)),
        dear("messages that are out", CODE.NOTIFICATION, **pop_fields(FLYING)),
        dear("those that wait", CODE.POLLING_INFO, consumerGroup=GROUP, topic="t1", queueId=0),
        dear("messages that are out", CODE.ACK_MESSAGE, **popped),
        dear(
            "messages that are out",
            CODE.CHANGE_MESSAGE_INVISIBLETIME,
            **{**popped, "invisibleTime": "7200000"},
        ),
        dear(
            "bits",
            CODE.BATCH_ACK_MESSAGE,
            compact_json({"brokerName": "broker-a", "acks": [bits]}).encode(),
        ),
        dear(
            "handles",
            CODE.BATCH_ACK_MESSAGE,
            compact_json({"brokerName": "broker-a", "acks": acks}).encode(),
        ),
    ]


def _lites(full: FullBroker) -> list[Dear]:
    pop = {
        **{"clientId": "c0", "consumerGroup": LITES, "topic": LITE, "maxMsgNum": "32"},
        **{"invisibleTime": "60000", "pollTime": "0", "bornTime": "1", "attemptId": "a"},
    }
    one = {"consumerGroup": LITES, "topic": LITE, "queueId": "0", "offset": "0", "liteTopic": "s1"}
    one["extraInfo"] = "0 1 3600000 999 0 broker-a 0 0"
    subscription = {"clientId": "new", "group": LITES, "topic": LITE}
    names = [f"s{number}" for number in range(2000)]
    return [
        dear("lite topics of a client", CODE.POP_LITE_MESSAGE, **pop),
        *(
            dear(
                action,
                CODE.LITE_SUBSCRIPTION_CTL,
                compact_json(
                    {"subscriptionSet": [{**subscription, "action": action, "liteTopicSet": names}]}
                ).encode(),
            )
            for action in ("COMPLETE_ADD", "PARTIAL_REMOVE", "COMPLETE_REMOVE")
        ),
        dear("any", CODE.ACK_LITE_MESSAGE, **one),
        dear("topics and groups", CODE.GET_BROKER_LITE_INFO),
        dear("groups", CODE.GET_PARENT_TOPIC_INFO, topic=LITE),
        dear("groups", CODE.GET_LITE_TOPIC_INFO, parentTopic=LITE, liteTopic="s1"),
        dear(
            "lite topics of a client",
            CODE.GET_LITE_CLIENT_INFO,
            **{"parentTopic": LITE, "group": LITES, "clientId": "c0", "maxCount": "10000"},
        ),
        dear("any", CODE.GET_LITE_GROUP_INFO, group=LITES, liteTopic="s1", topK="1"),
        dear("clients", CODE.TRIGGER_LITE_DISPATCH, group=LITES),
    ]


def _lists() -> list[Dear]:
    codes = (
        *(CODE.GET_ALL_TOPIC_CONFIG, CODE.GET_ALL_SUBSCRIPTIONGROUP_CONFIG),
        *(CODE.GET_BROKER_RUNTIME_INFO, CODE.GET_BROKER_CONFIG, CODE.GET_BROKER_HA_STATUS),
        *(CODE.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, CODE.GET_ALL_DELAY_OFFSET),
        *(CODE.GET_TIMER_CHECK_POINT, CODE.GET_TIMER_METRICS, CODE.GET_ALL_MESSAGE_REQUEST_MODE),
        *(CODE.CLEAN_UNUSED_TOPIC, CODE.CLEAN_EXPIRED_CONSUMEQUEUE),
    )
    return [
        *(dear("any", code) for code in codes),
        dear("any", CODE.GET_TOPIC_CONFIG, topic=WIDE),
        dear("any", CODE.GET_SUBSCRIPTIONGROUP_CONFIG, group=GROUP),
    ]


def _inspections(full: FullBroker) -> list[Dear]:
    names = ";".join(f"t{number}" for number in range(min(8000, full.fullness.topics)))
    left_out = ",".join(f"g{number}" for number in range(8000))
    both = {"topic": WIDE, "group": GROUP}
    return [
        dear("queues", CODE.GET_TOPIC_STATS_INFO, topic=WIDE),
        dear("topics", CODE.GET_CONSUME_STATS, consumerGroup=GROUP),
        dear(
            "named topics", CODE.GET_CONSUME_STATS, consumerGroup=GROUP, topicList=f"{WIDE};{names}"
        ),
        dear(
            "topics named twice",
            CODE.GET_CONSUME_STATS,
            consumerGroup=GROUP,
            topicList=f"{WIDE};" * 8000,
        ),
        dear("all", CODE.GET_BROKER_CONSUME_STATS, isOrder="false"),
        dear("none", CODE.GET_BROKER_CONSUME_STATS, isOrder="true"),
        dear(
            "how far behind",
            CODE.VIEW_BROKER_STATS_DATA,
            **{"statsName": "GROUP_GET_FALL_SIZE", "statsKey": f"0@{WIDE}@{GROUP}"},
        ),
        dear("a counter", CODE.VIEW_BROKER_STATS_DATA, statsName="TOPIC_PUT_NUMS", statsKey=WIDE),
        dear("groups", CODE.QUERY_TOPIC_CONSUME_BY_WHO, topic=TOPIC),
        dear("topics", CODE.QUERY_TOPICS_BY_CONSUMER, group=GROUP),
        dear("any", CODE.QUERY_SUBSCRIPTION_BY_CONSUMER, topic=TOPIC, group=CROWD),
        dear(
            "groups",
            CODE.QUERY_CORRECTION_OFFSET,
            **{"topic": TOPIC, "compareGroup": GROUP, "filterGroups": left_out},
        ),
        dear(
            "units",
            CODE.QUERY_CONSUME_QUEUE,
            **{"topic": KEYED, "queueId": 0, "index": 0, "count": 1000},
            consumerGroup="g1",
        ),
        dear("queues", CODE.QUERY_CONSUME_TIME_SPAN, **both),
    ]


def _changes() -> list[Dear]:
    topic = {
        **{"topicName": "n%d", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6},
        **{"topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": False},
    }
    group = {"groupName": "n%d", "retryQueueNums": 1, "retryMaxTimes": 16}
    topics = _listed(compact_json(topic), MAX_TOPICS_AT_ONCE)
    groups = _listed(compact_json(group), MAX_GROUPS_AT_ONCE)
    policy = {"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": [1000] * 400}}
    values = '"x":[' + "[]," * (SMALL.values // 2 - 1000) + "1]"
    one = compact_json({**group, "groupName": "g3", "groupRetryPolicy": policy})[:-1]
    settings = "\n".join(f"# {number}" for number in range(500)) + "\nfileReservedTime=72"
    mode = {"consumerGroup": GROUP, "topic": TOPIC, "mode": "POP", "popShareQueueNum": 1}
    return [
        dear(
            "queues",
            CODE.UPDATE_AND_CREATE_TOPIC,
            **{"topic": "wide2", "defaultTopic": "TBW102", "readQueueNums": 1024},
            **{"writeQueueNums": 1024, "perm": 6, "topicFilterType": "SINGLE_TAG"},
        ),
        dear(
            "topics",
            CODE.UPDATE_AND_CREATE_TOPIC_LIST,
            f'{{"topicConfigList":[{topics}]}}'.encode(),
        ),
        dear("values", CODE.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, f"{one},{values}}}".encode()),
        dear(
            "groups",
            CODE.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
            f'{{"groupConfigList":[{groups}]}}'.encode(),
        ),
        *_users(),
        dear("any", CODE.UPDATE_AND_GET_GROUP_FORBIDDEN, group=GROUP, topic="t2", readable="false"),
        dear("lines", CODE.UPDATE_BROKER_CONFIG, settings.encode()),
        dear("any", CODE.SET_MESSAGE_REQUEST_MODE, compact_json(mode).encode()),
    ]


def _users() -> list[Dear]:
    """Return the requests about users and rules. Without access control a change is refused when
    its body is read.
    """
    user = {"username": "new", "password": "a" * 128, "userType": "Normal"}
    entry = {"resource": "Topic:t", "actions": ["Pub"], "decision": "Allow"}
    entries = [{**entry, "resource": f"Topic:t{number}"} for number in range(MAX_ENTRIES)]
    acl = {"subject": "User:u1", "policies": [{"policyType": "Custom", "entries": entries}]}
    names = ",".join(f"t{number}=PUB" for number in range(MAX_ENTRIES))
    needs = [AskedNeed("Topic", f"t{number}", ("Pub", "Sub")) for number in range(MAX_NEEDS)]
    permissions = {"topicPerms": names, "groupPerms": names, "secretKey": "a" * 128}
    return [
        dear("any", CODE.AUTH_CREATE_USER, compact_json(user).encode()),
        dear("any", CODE.AUTH_UPDATE_USER, compact_json(user).encode()),
        dear("any", CODE.AUTH_DELETE_USER, username="u0"),
        dear("any", CODE.AUTH_GET_USER, username="u1"),
        dear("users", CODE.AUTH_LIST_USER),
        dear("rules", CODE.AUTH_CREATE_ACL, compact_json(acl).encode()),
        dear("rules", CODE.AUTH_UPDATE_ACL, compact_json(acl).encode()),
        dear("rules", CODE.AUTH_DELETE_ACL, subject="User:u1"),
        dear("rules", CODE.AUTH_GET_ACL, subject="User:u1"),
        dear("rules", CODE.AUTH_LIST_ACL),
        dear("rules", CODE.CHECK_ACCESS, encode_needs(needs)),
        dear("rules", CODE.UPDATE_AND_CREATE_ACL_CONFIG, accessKey="u1", **permissions),
        dear("any", CODE.DELETE_ACL_CONFIG, accessKey="u0"),
        dear("any", CODE.GET_BROKER_CLUSTER_ACL_INFO),
        dear("rules", CODE.GET_BROKER_CLUSTER_ACL_CONFIG),
    ]


def _deletions() -> list[Dear]:
    return [
        dear("any", CODE.TRIGGER_DELETE_FILES),
        dear("any", CODE.DELETE_EXPIRED_COMMITLOG),
        dear("groups", CODE.DELETE_TOPIC_IN_BROKER, topic=TOPIC),
        dear("queues", CODE.DELETE_TOPIC_IN_BROKER, topic=WIDE),
        dear("topics", CODE.DELETE_SUBSCRIPTIONGROUP, groupName=GROUP, cleanOffset="true"),
    ]

"""The dearest requests of each code that a broker answers, by what is dear about them."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

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
from remoting.bodies.consumer_group import MAX_LOCKED_QUEUES
from remoting.bodies.heartbeat import MAX_HEARTBEAT_BYTES
from remoting.bodies.pop import MAX_ACKS, MAX_BITS
from remoting.message.batch import MAX_BATCH_MESSAGES, BatchMessage, encode_batch_body
from remoting.message.message_id import message_id
from remoting.wire.codes import RequestCode
from remoting.wire.command import Command
from remoting.wire.loose_json import SMALL, compact_json

CODE: Final = RequestCode

# By what is dear: the request.
Dearest: TypeAlias = Mapping[str, Command]

_LONG_RUN: Final = "".join(f"p{number}\x01v\x02" for number in range(3000))


def command(code: RequestCode, /, **fields: object) -> Command:
    """A request with its fields as text, and no body."""
    return Command(code, {name: str(value) for name, value in fields.items()})


def dearest_requests(full: FullBroker) -> dict[int, Dearest]:
    """Of every code, in an order in which none changes much for those that follow."""
    return {
        **_lists(full),
        **_inspections(full),
        **_offsets(full),
        **_messages(full),
        **_pops(full),
        **_clients(full),
        **_changes(full),
        **_deletions(),
    }


def _messages(full: FullBroker) -> dict[int, Dearest]:
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
    return {
        CODE.SEND_MESSAGE: {
            "many properties": Command(CODE.SEND_MESSAGE, long_fields, b"x"),
            "a large message": Command(
                CODE.SEND_MESSAGE, {**long_fields, "properties": ""}, large_body
            ),
        },
        CODE.SEND_MESSAGE_V2: {
            "many properties": Command(CODE.SEND_MESSAGE_V2, {**plain, "i": _LONG_RUN}, b"x"),
            "a large message": Command(CODE.SEND_MESSAGE_V2, plain, large_body),
        },
        CODE.SEND_BATCH_MESSAGE: {
            "many messages": Command(CODE.SEND_BATCH_MESSAGE, {**plain, "m": "true"}, batch),
        },
        CODE.SEND_REPLY_MESSAGE: {
            "many properties": Command(CODE.SEND_REPLY_MESSAGE, long_asked, large_body)
        },
        CODE.SEND_REPLY_MESSAGE_V2: {
            "many properties": Command(CODE.SEND_REPLY_MESSAGE_V2, asked, large_body)
        },
        CODE.CONSUMER_SEND_MSG_BACK: {
            "a large message": Command(CODE.CONSUMER_SEND_MSG_BACK, {**back, "delayLevel": "0"}),
        },
        CODE.PULL_MESSAGE: {
            name: Command(CODE.PULL_MESSAGE, fields) for name, fields in pulls.items()
        },
        CODE.LITE_PULL_MESSAGE: {
            name: Command(CODE.LITE_PULL_MESSAGE, fields) for name, fields in pulls.items()
        },
        CODE.QUERY_MESSAGE: {
            "large messages": Command(CODE.QUERY_MESSAGE, search),
            "many messages": Command(CODE.QUERY_MESSAGE, {**search, "topic": KEYED}),
            "many messages of another time": Command(
                CODE.QUERY_MESSAGE, {**search, "topic": KEYED, "endTimestamp": "1"}
            ),
        },
        CODE.VIEW_MESSAGE_BY_ID: {
            "a large message": command(CODE.VIEW_MESSAGE_BY_ID, offset=full.large_position)
        },
        CODE.RECALL_MESSAGE: {
            "large messages of one time": command(
                CODE.RECALL_MESSAGE, topic=LARGE, recallHandle=recall
            ),
            "many messages of one time": command(
                CODE.RECALL_MESSAGE,
                topic=TOPIC,
                recallHandle=recall_handle(TOPIC, DUE_MS + 1, "nobody"),
            ),
        },
        CODE.END_TRANSACTION: {
            "an open one": Command(
                CODE.END_TRANSACTION, {**half, "commitLogOffset": str(full.half_position)}
            ),
            "one of a large message": Command(
                CODE.END_TRANSACTION, {**half, "commitLogOffset": str(full.large_position)}
            ),
        },
        CODE.RESUME_CHECK_HALF_MESSAGE: {
            "a large message": command(
                CODE.RESUME_CHECK_HALF_MESSAGE,
                msgId=message_id("127.0.0.1", 1, full.large_position),
            )
        },
        CODE.REDRIVE_DEAD_LETTERS: {
            "large messages": Command(CODE.REDRIVE_DEAD_LETTERS, redrive, ids),
            "all of them": Command(CODE.REDRIVE_DEAD_LETTERS, redrive),
        },
    }


def _client(number: int) -> str:
    return f"10.0.0.1@{number}#0"


def _listed(part: str, count: int) -> str:
    """`count` parts with different numbers for `%d`."""
    return ",".join([part % number for number in range(count)])


def _heartbeat(members: str) -> bytes:
    return f'{{"clientID":"{CLIENT}",{members}}}'.encode()


def _clients(full: FullBroker) -> dict[int, Dearest]:
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
    return {
        CODE.HEART_BEAT: {
            "subscriptions": Command(
                CODE.HEART_BEAT, {}, _heartbeat(f"{group}{subscriptions}]}}]")
            ),
            "conditions": Command(CODE.HEART_BEAT, {}, _heartbeat(f"{group}{conditions}]}}]")),
            "consumer groups": Command(
                CODE.HEART_BEAT,
                {},
                _heartbeat(f'"consumerDataSet":[{_listed("""{"groupName":"h%d"}""", 1000)}]'),
            ),
            "producer groups": Command(
                CODE.HEART_BEAT,
                {},
                _heartbeat(f'"producerDataSet":[{_listed("""{"groupName":"p%d"}""", 1000)}]'),
            ),
            "values": Command(CODE.HEART_BEAT, {}, _heartbeat(surrogates)),
            "one text": Command(
                CODE.HEART_BEAT,
                {},
                _heartbeat('"x":"' + "\\ud83d\\ude00" * (MAX_HEARTBEAT_BYTES // 12 - 10) + '"'),
            ),
        },
        CODE.CHECK_CLIENT_CONFIG: {
            "a condition": Command(CODE.CHECK_CLIENT_CONFIG, {}, one_condition)
        },
        CODE.GET_CONSUMER_LIST_BY_GROUP: {
            "clients": Command(CODE.GET_CONSUMER_LIST_BY_GROUP, of_crowd)
        },
        CODE.GET_CONSUMER_CONNECTION_LIST: {
            "clients": Command(CODE.GET_CONSUMER_CONNECTION_LIST, of_crowd)
        },
        CODE.GET_PRODUCER_CONNECTION_LIST: {
            "clients": command(CODE.GET_PRODUCER_CONNECTION_LIST, producerGroup=CROWD)
        },
        CODE.GET_ALL_PRODUCER_INFO: {"clients": Command(CODE.GET_ALL_PRODUCER_INFO)},
        CODE.LOCK_BATCH_MQ: {"queues": Command(CODE.LOCK_BATCH_MQ, {}, lock)},
        CODE.UNLOCK_BATCH_MQ: {"queues": Command(CODE.UNLOCK_BATCH_MQ, {}, lock)},
        CODE.QUERY_ASSIGNMENT: {
            "queues and clients": Command(
                CODE.QUERY_ASSIGNMENT, {}, compact_json(question).encode()
            )
        },
        CODE.GET_CONSUMER_RUNNING_INFO: {
            "clients": command(
                CODE.GET_CONSUMER_RUNNING_INFO,
                **{"consumerGroup": CROWD, "clientId": _client(full.fullness.clients - 1)},
            )
        },
        CODE.CONSUME_MESSAGE_DIRECTLY: {
            "clients and a large message": command(
                CODE.CONSUME_MESSAGE_DIRECTLY,
                **{"consumerGroup": CROWD, "clientId": _client(full.fullness.clients - 1)},
                msgId=message_id("127.0.0.1", 1, full.large_position),
            )
        },
        CODE.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: {
            "clients": command(
                CODE.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, topic=TOPIC, group=CROWD, clientAddr=""
            )
        },
        CODE.UNREGISTER_CLIENT: {
            "any": command(
                CODE.UNREGISTER_CLIENT, clientID=CLIENT, consumerGroup=CROWD, producerGroup=CROWD
            )
        },
    }


def _offsets(full: FullBroker) -> dict[int, Dearest]:
    of_queue: dict[str, Any] = {"topic": KEYED, "queueId": 0}
    at = {**of_queue, "timestamp": full.now_ms + 1, "boundaryType": "UPPER"}
    return {
        CODE.QUERY_CONSUMER_OFFSET: {
            "one that is not known": command(
                CODE.QUERY_CONSUMER_OFFSET, **of_queue, consumerGroup="nobody"
            )
        },
        CODE.UPDATE_CONSUMER_OFFSET: {
            "a new one": command(
                CODE.UPDATE_CONSUMER_OFFSET,
                **{"topic": WIDE, "queueId": 0, "consumerGroup": GROUP, "commitOffset": 2},
            )
        },
        CODE.SEARCH_OFFSET_BY_TIMESTAMP: {
            "many messages": command(CODE.SEARCH_OFFSET_BY_TIMESTAMP, **at)
        },
        CODE.GET_MAX_OFFSET: {"any": command(CODE.GET_MAX_OFFSET, **of_queue)},
        CODE.GET_MIN_OFFSET: {"any": command(CODE.GET_MIN_OFFSET, **of_queue)},
        CODE.GET_EARLIEST_MSG_STORETIME: {
            "any": command(CODE.GET_EARLIEST_MSG_STORETIME, **of_queue)
        },
        CODE.GET_ALL_CONSUMER_OFFSET: {"offsets": command(CODE.GET_ALL_CONSUMER_OFFSET)},
        CODE.INVOKE_BROKER_TO_RESET_OFFSET: {
            "queues": command(
                CODE.INVOKE_BROKER_TO_RESET_OFFSET,
                **{"group": GROUP, "topic": WIDE, "timestamp": full.now_ms, "isForce": "true"},
            )
        },
        CODE.CLONE_GROUP_OFFSET: {
            "topics": command(CODE.CLONE_GROUP_OFFSET, srcGroup=GROUP, destGroup="g1"),
        },
    }


def _pops(full: FullBroker) -> dict[int, Dearest]:
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
    return {
        CODE.POP_MESSAGE: {
            "queues": Command(CODE.POP_MESSAGE, pop_fields(WIDE)),
            "messages that almost meet a condition": Command(
                CODE.POP_MESSAGE, pop_fields(TEXTS) | condition
            ),
            "messages that are out": Command(CODE.POP_MESSAGE, pop_fields(FLYING)),
            "those that wait": Command(CODE.POP_MESSAGE, pop_fields("t1")),
        },
        CODE.PEEK_MESSAGE: {
            "queues": Command(CODE.PEEK_MESSAGE, pop_fields(WIDE)),
            "messages that are out": Command(CODE.PEEK_MESSAGE, pop_fields(FLYING)),
            "large messages": Command(CODE.PEEK_MESSAGE, pop_fields(LARGE)),
        },
        CODE.NOTIFICATION: {
            "queues": Command(CODE.NOTIFICATION, pop_fields(WIDE)),
            "messages that are out": Command(CODE.NOTIFICATION, pop_fields(FLYING)),
        },
        CODE.POLLING_INFO: {
            "those that wait": command(
                CODE.POLLING_INFO, consumerGroup=GROUP, topic="t1", queueId=0
            )
        },
        CODE.ACK_MESSAGE: {"messages that are out": command(CODE.ACK_MESSAGE, **popped)},
        CODE.CHANGE_MESSAGE_INVISIBLETIME: {
            "messages that are out": command(
                CODE.CHANGE_MESSAGE_INVISIBLETIME, **{**popped, "invisibleTime": "7200000"}
            )
        },
        CODE.BATCH_ACK_MESSAGE: {
            "bits": Command(
                CODE.BATCH_ACK_MESSAGE,
                {},
                compact_json({"brokerName": "broker-a", "acks": [bits]}).encode(),
            ),
            "handles": Command(
                CODE.BATCH_ACK_MESSAGE,
                {},
                compact_json({"brokerName": "broker-a", "acks": acks}).encode(),
            ),
        },
    }


def _lists(_full: FullBroker) -> dict[int, Dearest]:
    codes = (
        *(CODE.GET_ALL_TOPIC_CONFIG, CODE.GET_ALL_SUBSCRIPTIONGROUP_CONFIG),
        *(CODE.GET_BROKER_RUNTIME_INFO, CODE.GET_BROKER_CONFIG, CODE.GET_BROKER_HA_STATUS),
        *(CODE.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, CODE.GET_ALL_DELAY_OFFSET),
        *(CODE.GET_TIMER_CHECK_POINT, CODE.GET_TIMER_METRICS, CODE.GET_ALL_MESSAGE_REQUEST_MODE),
        *(CODE.CLEAN_UNUSED_TOPIC, CODE.CLEAN_EXPIRED_CONSUMEQUEUE),
    )
    return {
        **{code: {"any": Command(code)} for code in codes},
        CODE.GET_TOPIC_CONFIG: {"any": command(CODE.GET_TOPIC_CONFIG, topic=WIDE)},
        CODE.GET_SUBSCRIPTIONGROUP_CONFIG: {
            "any": command(CODE.GET_SUBSCRIPTIONGROUP_CONFIG, group=GROUP)
        },
    }


def _inspections(full: FullBroker) -> dict[int, Dearest]:
    names = ";".join(f"t{number}" for number in range(min(8000, full.fullness.topics)))
    left_out = ",".join(f"g{number}" for number in range(8000))
    both = {"topic": WIDE, "group": GROUP}
    return {
        CODE.GET_TOPIC_STATS_INFO: {"queues": command(CODE.GET_TOPIC_STATS_INFO, topic=WIDE)},
        CODE.GET_CONSUME_STATS: {
            "topics": command(CODE.GET_CONSUME_STATS, consumerGroup=GROUP),
            "named topics": command(
                CODE.GET_CONSUME_STATS, consumerGroup=GROUP, topicList=f"{WIDE};{names}"
            ),
            "topics named twice": command(
                CODE.GET_CONSUME_STATS, consumerGroup=GROUP, topicList=f"{WIDE};" * 8000
            ),
        },
        CODE.GET_BROKER_CONSUME_STATS: {
            "all": command(CODE.GET_BROKER_CONSUME_STATS, isOrder="false"),
            "none": command(CODE.GET_BROKER_CONSUME_STATS, isOrder="true"),
        },
        CODE.VIEW_BROKER_STATS_DATA: {
            "how far behind": command(
                CODE.VIEW_BROKER_STATS_DATA,
                **{"statsName": "GROUP_GET_FALL_SIZE", "statsKey": f"0@{WIDE}@{GROUP}"},
            ),
            "a counter": command(
                CODE.VIEW_BROKER_STATS_DATA, statsName="TOPIC_PUT_NUMS", statsKey=WIDE
            ),
        },
        CODE.QUERY_TOPIC_CONSUME_BY_WHO: {
            "groups": command(CODE.QUERY_TOPIC_CONSUME_BY_WHO, topic=TOPIC)
        },
        CODE.QUERY_TOPICS_BY_CONSUMER: {
            "topics": command(CODE.QUERY_TOPICS_BY_CONSUMER, group=GROUP)
        },
        CODE.QUERY_SUBSCRIPTION_BY_CONSUMER: {
            "any": command(CODE.QUERY_SUBSCRIPTION_BY_CONSUMER, topic=TOPIC, group=CROWD)
        },
        CODE.QUERY_CORRECTION_OFFSET: {
            "groups": command(
                CODE.QUERY_CORRECTION_OFFSET,
                **{"topic": TOPIC, "compareGroup": GROUP, "filterGroups": left_out},
            ),
        },
        CODE.QUERY_CONSUME_QUEUE: {
            "units": command(
                CODE.QUERY_CONSUME_QUEUE,
                **{"topic": KEYED, "queueId": 0, "index": 0, "count": 1000},
                consumerGroup="g1",
            )
        },
        CODE.QUERY_CONSUME_TIME_SPAN: {"queues": command(CODE.QUERY_CONSUME_TIME_SPAN, **both)},
    }


def _changes(_full: FullBroker) -> dict[int, Dearest]:
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
    return {
        CODE.UPDATE_AND_CREATE_TOPIC: {
            "queues": command(
                CODE.UPDATE_AND_CREATE_TOPIC,
                **{"topic": "wide2", "defaultTopic": "TBW102", "readQueueNums": 1024},
                **{"writeQueueNums": 1024, "perm": 6, "topicFilterType": "SINGLE_TAG"},
            )
        },
        CODE.UPDATE_AND_CREATE_TOPIC_LIST: {
            "topics": Command(
                CODE.UPDATE_AND_CREATE_TOPIC_LIST, {}, f'{{"topicConfigList":[{topics}]}}'.encode()
            )
        },
        CODE.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: {
            "values": Command(
                CODE.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, f"{one},{values}}}".encode()
            )
        },
        CODE.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: {
            "groups": Command(
                CODE.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
                {},
                f'{{"groupConfigList":[{groups}]}}'.encode(),
            )
        },
        CODE.UPDATE_AND_GET_GROUP_FORBIDDEN: {
            "any": command(
                CODE.UPDATE_AND_GET_GROUP_FORBIDDEN, group=GROUP, topic="t2", readable="false"
            )
        },
        CODE.UPDATE_BROKER_CONFIG: {
            "lines": Command(CODE.UPDATE_BROKER_CONFIG, {}, settings.encode())
        },
        CODE.SET_MESSAGE_REQUEST_MODE: {
            "any": Command(CODE.SET_MESSAGE_REQUEST_MODE, {}, compact_json(mode).encode())
        },
    }


def _deletions() -> dict[int, Dearest]:
    return {
        CODE.TRIGGER_DELETE_FILES: {"any": Command(CODE.TRIGGER_DELETE_FILES)},
        CODE.DELETE_EXPIRED_COMMITLOG: {"any": Command(CODE.DELETE_EXPIRED_COMMITLOG)},
        CODE.DELETE_TOPIC_IN_BROKER: {
            "groups": command(CODE.DELETE_TOPIC_IN_BROKER, topic=TOPIC),
            "queues": command(CODE.DELETE_TOPIC_IN_BROKER, topic=WIDE),
        },
        CODE.DELETE_SUBSCRIPTIONGROUP: {
            "topics": command(CODE.DELETE_SUBSCRIPTIONGROUP, groupName=GROUP, cleanOffset="true")
        },
    }

"""Each request that a broker answers, with all that it reads."""

from __future__ import annotations

import base64
import json
from typing import Any

from remoting.message.batch import BatchMessage, encode_batch_body
from remoting.wire.codes import RequestCode
from tests.broker.one_broker import send_fields

# These texts stand for the place of a message in the log, for that of a half message whose
# transaction is open, and for another name in each request.
PLACE = "{place}"
HALF_PLACE = "{half}"
NEW_NAME = "{new name}"

SEND = {**send_fields("T", 0), "l": 16, "m": "false"}
LONG_SEND = {
    "producerGroup": "p",
    "topic": "T",
    "defaultTopic": "TBW102",
    "defaultTopicQueueNums": 4,
    "queueId": 0,
    "sysFlag": 0,
    "bornTimestamp": 1,
    "flag": 0,
    "properties": "",
    "reconsumeTimes": 0,
    "unitMode": "false",
    "batch": "false",
    "maxReconsumeTimes": 16,
}
OF_A_QUEUE = {"topic": "T", "queueId": 0}
PULL = {
    **OF_A_QUEUE,
    "consumerGroup": "g",
    "queueOffset": 0,
    "maxMsgNums": 32,
    "sysFlag": 4,
    "commitOffset": 0,
    "suspendTimeoutMillis": 0,
    "subVersion": 0,
    "subscription": "*",
    "expressionType": "TAG",
}
USER_INFO = {
    "username": "u",
    "password": "a-secret-of-u",
    "userType": "Normal",
    "userStatus": "enable",
}
NEEDS = {"needs": [{"kind": "Topic", "name": "T", "actions": ["Pub", "Sub"]}]}
ACL = {
    "subject": "User:attacker",
    "policies": [
        {
            "policyType": "Custom",
            "entries": [
                {
                    "resource": "Topic:T",
                    "actions": ["Pub", "Sub"],
                    "sourceIps": ["127.0.0.1"],
                    "decision": "Allow",
                }
            ],
        }
    ],
}
ACCOUNT = {
    "accessKey": NEW_NAME,
    "secretKey": "a-secret-of-it",
    "admin": "false",
    "defaultTopicPerm": "DENY",
    "defaultGroupPerm": "SUB",
    "topicPerms": "T=PUB|SUB,U=DENY",
    "groupPerms": "G=SUB",
}
HEARTBEAT = {
    "clientID": "c",
    "consumerDataSet": [
        {
            "groupName": "g",
            "consumeType": "CONSUME_PASSIVELY",
            "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
            "subscriptionDataSet": [
                {
                    "topic": "T",
                    "subString": "A",
                    "subVersion": 1,
                    "expressionType": "TAG",
                    "tagsSet": ["A"],
                    "codeSet": [65],
                    "classFilterMode": False,
                }
            ],
            "unitMode": False,
        }
    ],
    "producerDataSet": [{"groupName": "p"}],
    "heartbeatFingerprint": 0,
    "withoutSub": False,
}
CONFIGURATION = {
    "clientId": "c",
    "group": "g",
    "subscriptionData": {
        "topic": "T",
        "subString": "n > 1 AND c = 'even'",
        "subVersion": 1,
        "expressionType": "SQL92",
        "tagsSet": ["A"],
        "codeSet": [65],
        "classFilterMode": False,
    },
}
LOCK = {
    "consumerGroup": "g",
    "clientId": "c",
    "mqSet": [{"topic": "T", "brokerName": "b", "queueId": 0}],
    "onlyThisBroker": False,
}
TOPIC = {
    "topic": "T",
    "defaultTopic": "TBW102",
    "readQueueNums": 4,
    "writeQueueNums": 4,
    "perm": 6,
    "topicFilterType": "SINGLE_TAG",
    "topicSysFlag": 0,
    "order": "false",
    "attributes": "+message.type=NORMAL",
}
GROUP = {
    "groupName": "g",
    "consumeEnable": True,
    "consumeFromMinEnable": True,
    "consumeBroadcastEnable": True,
    "consumeMessageOrderly": False,
    "retryQueueNums": 1,
    "retryMaxTimes": 16,
    "notifyConsumerIdsChangedEnable": True,
    "consumeTimeoutMinute": 15,
    "brokerId": 0,
    "whichBrokerWhenConsumeSlowly": 1,
    "groupSysFlag": 0,
    "groupRetryPolicy": {"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": [1000]}},
    "subscriptionDataSet": [
        {"topic": "T", "expressionType": "TAG", "expression": "*", "version": 1}
    ],
    "attributes": {},
}
ASKED_GROUP = {"consumerGroup": "g"}
POLLED = {
    **{"consumerGroup": "g", "topic": "T", "queueId": -1},
    **{"pollTime": 0, "bornTime": 1, "order": "false"},
}
POPPED = {
    **{"consumerGroup": "g", "topic": "T", "queueId": 0, "offset": 0},
    "extraInfo": "0 1700000000000 60000 0 0 broker-a 0 0",
}

CODE = RequestCode
# Every code that a broker answers: its fields, and a well-formed body.
REQUESTS: dict[int, tuple[dict[str, Any], bytes]] = {
    CODE.SEND_MESSAGE: (LONG_SEND, b"x"),
    CODE.SEND_MESSAGE_V2: (SEND, b"x"),
    CODE.SEND_REPLY_MESSAGE: (LONG_SEND, b"x"),
    CODE.SEND_REPLY_MESSAGE_V2: (SEND, b"x"),
    CODE.SEND_BATCH_MESSAGE: (SEND, encode_batch_body([BatchMessage(b"x"), BatchMessage(b"y")])),
    CODE.CONSUMER_SEND_MSG_BACK: (
        {
            "group": NEW_NAME,
            "offset": PLACE,
            "delayLevel": 0,
            "maxReconsumeTimes": 3,
            "originMsgId": "",
            "originTopic": "T",
            "unitMode": "false",
        },
        b"",
    ),
    CODE.PULL_MESSAGE: (PULL, b""),
    CODE.LITE_PULL_MESSAGE: (PULL, b""),
    CODE.HEART_BEAT: ({}, json.dumps(HEARTBEAT).encode()),
    CODE.UNREGISTER_CLIENT: ({"clientID": "c", "consumerGroup": "g", "producerGroup": "p"}, b""),
    CODE.GET_CONSUMER_LIST_BY_GROUP: (ASKED_GROUP, b""),
    CODE.LOCK_BATCH_MQ: ({}, json.dumps(LOCK).encode()),
    CODE.UNLOCK_BATCH_MQ: ({}, json.dumps(LOCK).encode()),
    CODE.CHECK_CLIENT_CONFIG: ({}, json.dumps(CONFIGURATION).encode()),
    CODE.QUERY_CONSUMER_OFFSET: ({**OF_A_QUEUE, **ASKED_GROUP, "setZeroIfNotFound": "true"}, b""),
    CODE.UPDATE_CONSUMER_OFFSET: ({**OF_A_QUEUE, **ASKED_GROUP, "commitOffset": 1}, b""),
    CODE.SEARCH_OFFSET_BY_TIMESTAMP: (
        {**OF_A_QUEUE, "timestamp": 1, "boundaryType": "LOWER"},
        b"",
    ),
    CODE.GET_MAX_OFFSET: (OF_A_QUEUE, b""),
    CODE.GET_MIN_OFFSET: (OF_A_QUEUE, b""),
    CODE.GET_EARLIEST_MSG_STORETIME: (OF_A_QUEUE, b""),
    CODE.GET_ALL_CONSUMER_OFFSET: ({}, b""),
    CODE.UPDATE_AND_CREATE_TOPIC: (TOPIC, b""),
    CODE.UPDATE_AND_CREATE_TOPIC_LIST: (
        {},
        json.dumps(
            {
                "topicConfigList": [
                    {
                        **{"topicName": "T", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6},
                        **{"topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": False},
                        "attributes": {"+message.type": "NORMAL"},
                    }
                ]
            }
        ).encode(),
    ),
    CODE.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: ({}, b""),
    CODE.CLEAN_UNUSED_TOPIC: ({}, b""),
    CODE.CLEAN_EXPIRED_CONSUMEQUEUE: ({}, b""),
    CODE.TRIGGER_DELETE_FILES: ({}, b""),
    CODE.DELETE_EXPIRED_COMMITLOG: ({}, b""),
    CODE.GET_ALL_DELAY_OFFSET: ({}, b""),
    CODE.GET_TIMER_CHECK_POINT: ({}, b""),
    CODE.GET_TIMER_METRICS: ({}, b""),
    CODE.GET_BROKER_HA_STATUS: ({}, b""),
    CODE.DELETE_TOPIC_IN_BROKER: ({"topic": "other"}, b""),
    CODE.GET_TOPIC_CONFIG: ({"topic": "T"}, b""),
    CODE.GET_ALL_TOPIC_CONFIG: ({}, b""),
    CODE.GET_TOPIC_STATS_INFO: ({"topic": "T"}, b""),
    CODE.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: ({}, json.dumps(GROUP).encode()),
    CODE.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: (
        {},
        json.dumps({"groupConfigList": [GROUP]}).encode(),
    ),
    CODE.UPDATE_AND_GET_GROUP_FORBIDDEN: ({"group": "g", "topic": "T", "readable": "true"}, b""),
    CODE.DELETE_SUBSCRIPTIONGROUP: ({"groupName": "other", "cleanOffset": "true"}, b""),
    CODE.GET_SUBSCRIPTIONGROUP_CONFIG: ({"group": "g"}, b""),
    CODE.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: ({}, b""),
    CODE.AUTH_CREATE_USER: ({"username": NEW_NAME}, json.dumps(USER_INFO).encode()),
    CODE.AUTH_UPDATE_USER: ({"username": "u"}, json.dumps(USER_INFO).encode()),
    CODE.AUTH_DELETE_USER: ({"username": "u"}, b""),
    CODE.AUTH_GET_USER: ({"username": "attacker"}, b""),
    CODE.AUTH_LIST_USER: ({"filter": "a"}, b""),
    CODE.AUTH_CREATE_ACL: ({"subject": "User:attacker"}, json.dumps(ACL).encode()),
    CODE.AUTH_UPDATE_ACL: ({"subject": "User:attacker"}, json.dumps(ACL).encode()),
    CODE.AUTH_DELETE_ACL: (
        {"subject": "User:attacker", "policyType": "Custom", "resource": "Topic:none"},
        b"",
    ),
    CODE.AUTH_GET_ACL: ({"subject": "User:attacker"}, b""),
    CODE.AUTH_LIST_ACL: ({"subjectFilter": "a", "resourceFilter": "*"}, b""),
    CODE.CHECK_ACCESS: ({}, json.dumps(NEEDS).encode()),
    CODE.UPDATE_AND_CREATE_ACL_CONFIG: (ACCOUNT, b""),
    CODE.DELETE_ACL_CONFIG: ({"accessKey": "u"}, b""),
    CODE.GET_BROKER_CLUSTER_ACL_INFO: ({}, b""),
    CODE.GET_BROKER_CLUSTER_ACL_CONFIG: ({}, b""),
    CODE.GET_CONSUMER_CONNECTION_LIST: (ASKED_GROUP, b""),
    CODE.GET_CONSUME_STATS: ({**ASKED_GROUP, "topic": "T", "topicList": "T;U"}, b""),
    CODE.GET_BROKER_CONSUME_STATS: ({"isOrder": "false"}, b""),
    CODE.GET_BROKER_RUNTIME_INFO: ({}, b""),
    CODE.GET_BROKER_CONFIG: ({}, b""),
    CODE.UPDATE_BROKER_CONFIG: ({}, b"fileReservedTime=48\ndeleteWhen=04"),
    CODE.VIEW_MESSAGE_BY_ID: ({"offset": PLACE}, b""),
    CODE.GET_CONSUMER_RUNNING_INFO: (
        {"consumerGroup": "g", "clientId": "c", "jstackEnable": "true"},
        b"",
    ),
    CODE.CONSUME_MESSAGE_DIRECTLY: (
        {"consumerGroup": "g", "clientId": "c", "msgId": "7F00000100002A9F0000000000000000"},
        b"",
    ),
    CODE.VIEW_BROKER_STATS_DATA: (
        {"statsName": "GROUP_GET_FALL_SIZE", "statsKey": "0@T@g"},
        b"",
    ),
    CODE.REDRIVE_DEAD_LETTERS: (
        {
            **{**ASKED_GROUP, "queueId": 0, "beginOffset": 0, "maxMsgNums": 32, "target": "GROUP"},
            **{"beginTimestamp": 0, "endTimestamp": 1, "dryRun": "false"},
        },
        b'{"msgIds":["7F00000100002A9F0000000000000000"]}',
    ),
    CODE.POP_MESSAGE: (
        {
            **POLLED,
            "maxMsgNums": 32,
            "invisibleTime": 60000,
            "initMode": 0,
            "exp": "*",
            "expType": "TAG",
            "order": "false",
            "attemptId": "a",
        },
        b"",
    ),
    CODE.NOTIFICATION: ({**POLLED, "attemptId": "a"}, b""),
    CODE.QUERY_ASSIGNMENT: (
        {},
        json.dumps(
            {
                **{"consumerGroup": "g", "topic": "T", "clientId": "c"},
                **{"strategyName": "AVG", "messageModel": "CLUSTERING"},
            }
        ).encode(),
    ),
    CODE.SET_MESSAGE_REQUEST_MODE: (
        {},
        json.dumps(
            {"consumerGroup": "g", "topic": "T", "mode": "POP", "popShareQueueNum": 1}
        ).encode(),
    ),
    CODE.GET_ALL_MESSAGE_REQUEST_MODE: ({}, b""),
    CODE.PEEK_MESSAGE: ({**POLLED, "maxMsgNums": 32, "attemptId": "a"}, b""),
    CODE.POLLING_INFO: ({**ASKED_GROUP, "topic": "T", "queueId": 0}, b""),
    CODE.ACK_MESSAGE: ({**POPPED, "liteTopic": ""}, b""),
    CODE.CHANGE_MESSAGE_INVISIBLETIME: (
        {**POPPED, "invisibleTime": 60000, "suspend": "true", "liteTopic": ""},
        b"",
    ),
    CODE.POP_LITE_MESSAGE: (
        {
            **{"clientId": "c", "consumerGroup": "lites", "topic": "Lite", "maxMsgNum": 32},
            **{"invisibleTime": 60000, "pollTime": 0, "bornTime": 0, "attemptId": "a"},
        },
        b"",
    ),
    CODE.LITE_SUBSCRIPTION_CTL: (
        {},
        json.dumps(
            {
                "subscriptionSet": [
                    {
                        **{"action": "COMPLETE_ADD", "clientId": "c", "group": "lites"},
                        **{"topic": "Lite", "liteTopicSet": ["a", "b"], "version": 1},
                        "offsetOption": {"type": "POLICY", "value": 1},
                    }
                ]
            }
        ).encode(),
    ),
    CODE.ACK_LITE_MESSAGE: (
        {**POPPED, "consumerGroup": "lites", "topic": "Lite", "liteTopic": "a"},
        b"",
    ),
    CODE.GET_BROKER_LITE_INFO: ({}, b""),
    CODE.GET_PARENT_TOPIC_INFO: ({"topic": "Lite"}, b""),
    CODE.GET_LITE_TOPIC_INFO: ({"parentTopic": "Lite", "liteTopic": "a"}, b""),
    CODE.GET_LITE_CLIENT_INFO: (
        {"parentTopic": "Lite", "group": "lites", "clientId": "c", "maxCount": 10},
        b"",
    ),
    CODE.GET_LITE_GROUP_INFO: ({"group": "lites", "liteTopic": "a", "topK": 1}, b""),
    CODE.TRIGGER_LITE_DISPATCH: ({"group": "lites", "clientId": "c"}, b""),
    CODE.BATCH_ACK_MESSAGE: (
        {},
        json.dumps(
            {
                "brokerName": "broker-a",
                "acks": [
                    {
                        **{"c": "g", "t": "T", "r": "0", "so": 0, "q": 0, "rq": 0},
                        **{"pt": 1, "it": 1, "b": "AQ=="},
                    }
                ],
            }
        ).encode(),
    ),
    CODE.QUERY_TOPIC_CONSUME_BY_WHO: ({"topic": "T"}, b""),
    CODE.QUERY_MESSAGE: (
        {
            "topic": "T",
            "key": "k",
            "maxNum": 32,
            "beginTimestamp": 0,
            "endTimestamp": 1 << 62,
            "_UNIQUE_KEY_QUERY": "false",
        },
        b"",
    ),
    CODE.QUERY_TOPICS_BY_CONSUMER: ({"group": "g"}, b""),
    CODE.QUERY_SUBSCRIPTION_BY_CONSUMER: ({"topic": "T", "group": "g"}, b""),
    CODE.QUERY_CORRECTION_OFFSET: (
        {"topic": "T", "compareGroup": "g", "filterGroups": "h,i"},
        b"",
    ),
    CODE.QUERY_CONSUME_QUEUE: (
        {**OF_A_QUEUE, "index": 0, "count": 10, "consumerGroup": "g"},
        b"",
    ),
    CODE.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: (
        {"topic": "T", "group": "g", "clientAddr": ""},
        b"",
    ),
    CODE.RESUME_CHECK_HALF_MESSAGE: ({"msgId": "7F00000100002A9F0000000000000000"}, b""),
    CODE.QUERY_CONSUME_TIME_SPAN: ({"topic": "T", "group": "g"}, b""),
    CODE.CLONE_GROUP_OFFSET: (
        {"srcGroup": "g", "destGroup": "h", "topic": "T", "offline": "true"},
        b"",
    ),
    CODE.INVOKE_BROKER_TO_RESET_OFFSET: (
        {
            "group": "g",
            "topic": "T",
            "timestamp": 0,
            "isForce": "true",
            "queueId": 0,
            "offset": 0,
        },
        b"",
    ),
    CODE.RECALL_MESSAGE: (
        {"topic": "T", "recallHandle": base64.urlsafe_b64encode(b"v1 T broker-a 5 key 5").decode()},
        b"",
    ),
    CODE.END_TRANSACTION: (
        {
            "producerGroup": "P",
            "tranStateTableOffset": 0,
            "commitLogOffset": HALF_PLACE,
            "commitOrRollback": 8,
            "fromTransactionCheck": "false",
            "msgId": "m",
            "transactionId": "m",
        },
        b"",
    ),
    CODE.GET_PRODUCER_CONNECTION_LIST: ({"producerGroup": "p"}, b""),
    CODE.GET_ALL_PRODUCER_INFO: ({}, b""),
}

"""The longest requests of each kind that servers take, and some that they must refuse."""

from __future__ import annotations

from remoting.bodies.heartbeat import MAX_HEARTBEAT_BYTES
from remoting.bodies.registration import BrokerRegistration, encode_registration
from remoting.bodies.topic_config import DataVersion, TopicConfig
from remoting.message.batch import BatchMessage, encode_batch_body
from remoting.wire.codes import RequestCode
from remoting.wire.loose_json import LARGE, SMALL
from tests.broker.one_broker import send_fields
from tests.hostile.nameserver_requests import IDENTITY

CODE = RequestCode
FRAME_BYTES = 16_000_000

Longest = tuple[RequestCode, dict[str, object], bytes]


def _listed(part: str, count: int) -> str:
    """`count` parts with different numbers for `%d`."""
    return ",".join([part % number for number in range(count)])


def _heartbeat(members: str) -> bytes:
    return f'{{"clientID":"c",{members}}}'.encode()


def _lock(member: str) -> bytes:
    return f'{{"consumerGroup":"g","clientId":"c",{member}}}'.encode()


_VALUES = '"x":[' + "[]," * (SMALL.values // 2 - 100) + "1]"
_SURROGATES = '"x":["\\ud800",' + "[]," * (SMALL.values // 2 - 100) + "1]"
_KEYS = '"x":{' + _listed('{"q":%d}:1', SMALL.object_keys) + "}"
_TOO_MANY_KEYS = '"x":{' + _listed('{"q":%d}:1', 40_000) + "}"
_LOOSE = '"x":[' + "{1:2}," * 20_000 + "1]"
_SEND = {**send_fields("T", 0), "i": "a\x01b\x02" * 8000}

TO_BROKER: dict[str, Longest] = {
    "consumer groups": (
        CODE.HEART_BEAT,
        {},
        _heartbeat(f'"consumerDataSet":[{_listed("""{"groupName":"g%d"}""", 1000)}]'),
    ),
    "too many consumer groups": (
        CODE.HEART_BEAT,
        {},
        _heartbeat(f'"consumerDataSet":[{_listed("""{"groupName":"g%d"}""", 20_000)}]'),
    ),
    "subscriptions": (
        CODE.HEART_BEAT,
        {},
        _heartbeat(
            '"consumerDataSet":[{"groupName":"g","subscriptionDataSet":['
            f'{_listed("""{"topic":"T%d"}""", 10_000)}]}}]'
        ),
    ),
    "values in a heartbeat": (CODE.HEART_BEAT, {}, _heartbeat(_VALUES)),
    "surrogates in a heartbeat": (CODE.HEART_BEAT, {}, _heartbeat(_SURROGATES)),
    "keys in a heartbeat": (CODE.HEART_BEAT, {}, _heartbeat(_KEYS)),
    "too many keys in a heartbeat": (CODE.HEART_BEAT, {}, _heartbeat(_TOO_MANY_KEYS)),
    "a loose heartbeat": (CODE.HEART_BEAT, {}, _heartbeat(_LOOSE)),
    "a heartbeat of one text": (
        CODE.HEART_BEAT,
        {},
        _heartbeat('"x":"' + "\\ud83d\\ude00" * (MAX_HEARTBEAT_BYTES // 12 - 10) + '"'),
    ),
    "queues to lock": (
        CODE.LOCK_BATCH_MQ,
        {},
        _lock(f'"mqSet":[{_listed("""{"topic":"T","brokerName":"b","queueId":%d}""", 10_000)}]'),
    ),
    "values in a lock": (CODE.LOCK_BATCH_MQ, {}, _lock(_SURROGATES)),
    "values in a group": (
        CODE.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        {},
        f'{{"groupName":"g",{_SURROGATES}}}'.encode(),
    ),
    "too many values in a group": (
        CODE.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        {},
        b'{"groupName":"g","x":[' + b"[]," * (FRAME_BYTES // 3) + b"1]}",
    ),
    "properties": (CODE.SEND_MESSAGE_V2, _SEND, b"x"),
    "a batch": (
        CODE.SEND_BATCH_MESSAGE,
        send_fields("T", 0),
        encode_batch_body([BatchMessage(b"x" * 500)] * 2000),
    ),
}

TO_NAMESERVER: dict[str, Longest] = {
    "topics": (
        CODE.REGISTER_BROKER,
        {**IDENTITY, "compressed": "false"},
        encode_registration(
            BrokerRegistration(
                {f"T{number}": TopicConfig(f"T{number}") for number in range(3000)},
                DataVersion(1, 5),
            )
        ),
    ),
    "too many values in a registration": (
        CODE.REGISTER_BROKER,
        {**IDENTITY, "compressed": "false"},
        b'{"x":[' + b"[]," * (LARGE.values // 2) + b"1]}",
    ),
    "values in a route": (
        CODE.REGISTER_TOPIC_IN_NAMESRV,
        {"topic": "T"},
        f'{{"queueDatas":[],{_SURROGATES}}}'.encode(),
    ),
    "too many keys in a route": (
        CODE.REGISTER_TOPIC_IN_NAMESRV,
        {"topic": "T"},
        f'{{"queueDatas":[],{_TOO_MANY_KEYS}}}'.encode(),
    ),
}

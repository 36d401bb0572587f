"""What a hostile client may put into a field, and requests that are right but for one field."""

from remoting.bodies.registration import BrokerRegistration, encode_registration
from remoting.bodies.route import QueueData, TopicRoute, encode_route
from remoting.bodies.topic_config import DataVersion, TopicConfig
from remoting.wire.codes import RequestCode
from remoting.wire.command import Command
from remoting.wire.loose_json import compact_json

BROKER = "10.0.0.1:10911"

IDENTITY = {"brokerName": "b", "brokerAddr": BROKER, "clusterName": "cl", "brokerId": "0"}
SETTING = {"namespace": "ORDER_TOPIC_CONFIG", "key": "T", "value": "b:4"}

REGISTRATION = encode_registration(BrokerRegistration({"T": TopicConfig("T")}, DataVersion(1, 5)))
VERSION = compact_json(DataVersion(1, 5).to_json()).encode()
ROUTE = encode_route(TopicRoute([QueueData("b", 1, 1, 6)]))

# Each request code that a name server answers, with all fields it reads and a body that is right.
REQUESTS: dict[RequestCode, tuple[dict[str, str], bytes]] = {
    RequestCode.PUT_KV_CONFIG: (SETTING, b""),
    RequestCode.GET_KV_CONFIG: (SETTING, b""),
    RequestCode.DELETE_KV_CONFIG: (SETTING, b""),
    RequestCode.REGISTER_BROKER: (
        IDENTITY
        | {
            "haServerAddr": "10.0.0.1:10912",
            "bodyCrc32": "0",
            "compressed": "false",
            "completeTopics": "true",
            "heartbeatTimeoutMillis": "30000",
        },
        REGISTRATION,
    ),
    RequestCode.UNREGISTER_BROKER: (IDENTITY, b""),
    RequestCode.GET_ROUTEINFO_BY_TOPIC: ({"topic": "T"}, b""),
    RequestCode.GET_BROKER_CLUSTER_INFO: ({}, b""),
    RequestCode.WIPE_WRITE_PERM_OF_BROKER: ({"brokerName": "b"}, b""),
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: ({}, b""),
    RequestCode.DELETE_TOPIC_IN_NAMESRV: ({"topic": "T", "clusterName": "cl"}, b""),
    RequestCode.REGISTER_TOPIC_IN_NAMESRV: ({"topic": "T"}, ROUTE),
    RequestCode.GET_KVLIST_BY_NAMESPACE: ({"namespace": "ORDER_TOPIC_CONFIG"}, b""),
    RequestCode.GET_TOPICS_BY_CLUSTER: ({"cluster": "cl"}, b""),
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: ({}, b""),
    RequestCode.GET_UNIT_TOPIC_LIST: ({}, b""),
    RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: ({}, b""),
    RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: ({}, b""),
    RequestCode.UPDATE_NAMESRV_CONFIG: ({}, b"a=b"),
    RequestCode.GET_NAMESRV_CONFIG: ({}, b""),
    RequestCode.QUERY_DATA_VERSION: (IDENTITY, VERSION),
    RequestCode.ADD_WRITE_PERM_OF_BROKER: ({"brokerName": "b"}, b""),
    RequestCode.GET_BROKER_MEMBER_GROUP: ({"brokerName": "b", "clusterName": "cl"}, b""),
    RequestCode.BROKER_HEARTBEAT: ({"brokerAddr": BROKER}, b""),
}

# As JSON, so that a field has the type that the text says; None leaves the field out.
FIELD_VALUES: tuple[str | None, ...] = (
    None,
    "null",
    '""',
    '" "',
    '"abc"',
    '"-1"',
    '"9223372036854775807"',
    '"9223372036854775808"',
    '"' + "9" * 5000 + '"',
    '"1_0"',
    '"\u0661"',
    "0",
    "-1",
    "1e400",
    "1.5",
    "NaN",
    "-Infinity",
    "true",
    "false",
    "[]",
    "{}",
    '[[{"a":[1]}]]',
    '"\\ud800"',
    '"\\udc00\\ud800"',
    '"\\u0000"',
    '"a\\r\\nb"',
    '"\\u001b[2J"',
    '"T%n%s"',
    '"' + "x" * 300_000 + '"',
    '"' + "\\ud83d\\ude00" * 20_000 + '"',
)

# Values of a member of a JSON body.
MEMBER_VALUES = (*(value for value in FIELD_VALUES if value is not None), "[1,2]", '{"a":{}}')

BODIES: tuple[bytes, ...] = (
    b"",
    b"null",
    b"7",
    b"[]",
    b"{}",
    b'""',
    b"\xff\xfe\x00",
    b"\x00" * 1000,
    b"{" * 100_000,
    b"[" * 100_000,
    b"{" * 40 + b'"a":1' + b"}:1" * 39 + b"}",
    b"{{}:1,{}:2}",
    b'{"a":' * 5_000 + b"1" + b"}" * 5_000,
    b"[" + b"[]," * 1_000_000 + b"1]",
    b"x" * 2_000_000,
)


def with_header(code: int, fields: dict[str, str], body: bytes, opaque: int) -> bytes:
    """A frame whose fields are JSON texts."""
    ext = ",".join([f"{compact_json(name)}:{value}" for name, value in fields.items()])
    header = (
        f'{{"code":{code},"extFields":{{{ext}}},"flag":0,"language":"JAVA","opaque":{opaque},'
        '"serializeTypeCurrentRPC":"JSON","version":409}'
    ).encode()
    total = 4 + len(header) + len(body)
    return total.to_bytes(4) + len(header).to_bytes(4) + header + body


def requests_with_one_wrong_field(code: RequestCode) -> list[bytes]:
    """The request, each of its fields and each other body in turn hostile."""
    fields, body = REQUESTS[code]
    right = {name: compact_json(value) for name, value in fields.items()}
    frames: list[bytes] = []
    for name in (*fields, "unknown"):
        for value in FIELD_VALUES:
            wrong = {**right, name: value or ""}
            if value is None:
                del wrong[name]
            frames.append(with_header(code, wrong, body, len(frames)))
    for compressed in ("false", "true"):
        for other in (*BODIES, *hostile_members(body)):
            wrong = {**right, "compressed": f'"{compressed}"'}
            frames.append(with_header(code, wrong, other, len(frames)))
    return frames


def hostile_members(body: bytes) -> list[bytes]:
    """A JSON body with each of its values in turn replaced."""
    if not body.startswith(b"{"):
        return []
    found: list[bytes] = []
    at = body.find(b":")
    while at >= 0:
        ends = [end for mark in b",}]" if (end := body.find(mark, at)) > 0]
        found += [body[: at + 1] + value.encode() + body[min(ends) :] for value in MEMBER_VALUES]
        at = body.find(b":", at + 1)
    return found


def register_command(topics: tuple[str, ...] = ("T",)) -> Command:
    """A registration of the broker that all goes on with."""
    registration = BrokerRegistration(
        {topic: TopicConfig(topic, 4, 4) for topic in topics}, DataVersion(1, 5)
    )
    fields = IDENTITY | {"bodyCrc32": "0", "compressed": "false", "completeTopics": "true"}
    return Command(RequestCode.REGISTER_BROKER, fields, encode_registration(registration))

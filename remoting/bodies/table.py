"""Small bodies: tables of texts, lists of topics, members of a broker name, settings as text."""

from collections.abc import Iterable, Mapping

from remoting.bodies.json_object import JsonObject
from remoting.bodies.route import BrokerData
from remoting.wire.loose_json import LARGE, compact_json


def encode_table(table: Mapping[str, str]) -> bytes:
    """Encode RocketMQ's KVTable: broker run-time figures (28), name server settings (219)."""
    return compact_json({"table": dict(table)}).encode()


def decode_table(body: bytes) -> dict[str, str]:
    """Decode a KVTable. Raises BodyMalformed."""
    return JsonObject.parse("table", body).object("table").named_texts()


def encode_topic_list(topics: Iterable[str], broker_address: str | None = None) -> bytes:
    """Encode RocketMQ's TopicList (206, 224, 300 and others)."""
    body: dict[str, object] = {"topicList": list(topics)}
    if broker_address is not None:
        body["brokerAddr"] = broker_address
    return compact_json(body).encode()


def decode_topic_list(body: bytes) -> list[str]:
    """Decode a TopicList. Raises BodyMalformed."""
    return JsonObject.parse("topic list", body, size=LARGE).texts("topicList")


def encode_member_group(broker: BrokerData) -> bytes:
    """Encode RocketMQ's BrokerMemberGroup (901)."""
    return compact_json({"brokerMemberGroup": broker.to_json()}).encode()


def encode_properties_text(settings: Mapping[str, str]) -> bytes:
    """Encode settings as "name=value" lines, as tools show them (26, 319)."""
    return "".join([f"{name}={value}\n" for name, value in settings.items()]).encode()


def decode_properties_text(body: bytes) -> dict[str, str]:
    """Decode "name=value" lines (25, 318), ignoring empty lines and comments (#)."""
    settings: dict[str, str] = {}
    for line in body.decode("utf-8", "replace").splitlines():
        name, separator, value = line.strip().partition("=")
        if separator and name and not name.startswith("#"):
            settings[name.strip()] = value.strip()
    return settings

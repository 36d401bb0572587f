"""The bodies about users and their rules (3001 to 3010), as RocketMQ 5 writes them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from remoting.bodies.json_object import JsonObject
from remoting.wire.command import Command
from remoting.wire.loose_json import JsonValue, compact_json

SUPER: Final = "Super"
NORMAL: Final = "Normal"
ENABLED: Final = "enable"
DISABLED: Final = "disable"

# A subject is a user.
SUBJECT_PREFIX: Final = "User:"

# Policies and rules in one request.
MAX_POLICIES: Final = 2
MAX_ENTRIES: Final = 200
_MAX_BODY_BYTES: Final = 1024 * 1024

# Topics of one client of a proxy, and its group.
MAX_NEEDS: Final = 1025


@dataclass(frozen=True, slots=True)
class UserInfo:
    """A user. What is "" stays as it is, or is not told.

    Attributes:
        password: its secret; not shown by `repr`.
        user_type: "Super" or "Normal".
        user_status: "enable" or "disable".
    """

    username: str
    password: str = field(default="", repr=False)
    user_type: str = ""
    user_status: str = ""

    @classmethod
    def from_json(cls, value: JsonObject) -> "UserInfo":
        """Raises BodyMalformed."""
        return cls(
            value.text("username", ""),
            value.text("password", ""),
            value.text("userType", ""),
            value.text("userStatus", ""),
        )

    def to_json(self) -> dict[str, JsonValue]:
        whole: dict[str, JsonValue] = {
            "username": self.username,
            "password": self.password,
            "userType": self.user_type,
            "userStatus": self.user_status,
        }
        return {name: value for name, value in whole.items() if value}


@dataclass(frozen=True, slots=True)
class AclEntry:
    """One rule.

    Attributes:
        resource: "Topic:orders", "Group:billing*", "Cluster:*" or "*".
        actions: RocketMQ's words.
        source_ips: addresses and networks; empty for all.
        decision: "Allow" or "Deny".
    """

    resource: str
    actions: tuple[str, ...]
    source_ips: tuple[str, ...] = ()
    decision: str = "Allow"

    @classmethod
    def from_json(cls, value: JsonObject) -> "AclEntry":
        """Raises BodyMalformed."""
        return cls(
            value.text("resource"),
            tuple(value.texts("actions")),
            tuple(value.texts("sourceIps")),
            value.text("decision"),
        )

    def to_json(self) -> dict[str, JsonValue]:
        return {
            "resource": self.resource,
            "actions": list(self.actions),
            "sourceIps": list(self.source_ips),
            "decision": self.decision,
        }


@dataclass(frozen=True, slots=True)
class AclPolicy:
    """The rules of a user of one type: "Custom", or "Default" for those that are asked last."""

    policy_type: str
    entries: tuple[AclEntry, ...]

    @classmethod
    def from_json(cls, value: JsonObject) -> "AclPolicy":
        """Raises BodyMalformed."""
        entries = value.objects("entries", MAX_ENTRIES)
        return cls(value.text("policyType", ""), tuple(map(AclEntry.from_json, entries)))

    def to_json(self) -> dict[str, JsonValue]:
        return {
            "policyType": self.policy_type,
            "entries": [entry.to_json() for entry in self.entries],
        }


@dataclass(frozen=True, slots=True)
class AclInfo:
    """All rules of a subject, "User:name"."""

    subject: str
    policies: tuple[AclPolicy, ...]

    @classmethod
    def from_json(cls, value: JsonObject) -> "AclInfo":
        """Raises BodyMalformed."""
        policies = value.objects("policies", MAX_POLICIES)
        return cls(value.text("subject", ""), tuple(map(AclPolicy.from_json, policies)))

    def to_json(self) -> dict[str, JsonValue]:
        policies: Sequence[JsonValue] = [policy.to_json() for policy in self.policies]
        return {"subject": self.subject, "policies": list(policies)}


@dataclass(frozen=True, slots=True)
class AskedNeed:
    """What a proxy asks for a client (31002, a request of our own): one of some actions.

    Attributes:
        kind: "Topic" or "Group".
        name: of the topic or the group.
        actions: RocketMQ's words.
    """

    kind: str
    name: str
    actions: tuple[str, ...]

    @classmethod
    def from_json(cls, value: JsonObject) -> "AskedNeed":
        """Raises BodyMalformed."""
        return cls(value.text("kind"), value.name("name"), tuple(value.texts("actions")))

    def to_json(self) -> dict[str, JsonValue]:
        return {"kind": self.kind, "name": self.name, "actions": list(self.actions)}


def encode_needs(needs: Sequence[AskedNeed]) -> bytes:
    return compact_json({"needs": [need.to_json() for need in needs]}).encode()


def read_needs(command: Command) -> list[AskedNeed]:
    """Raises BodyMalformed."""
    value = JsonObject.parse("needs", command.body, _MAX_BODY_BYTES)
    return [AskedNeed.from_json(one) for one in value.objects("needs", MAX_NEEDS)]


def read_user(command: Command) -> UserInfo:
    """Raises BodyMalformed."""
    return UserInfo.from_json(JsonObject.parse("user", command.body, _MAX_BODY_BYTES))


def read_acl(command: Command) -> AclInfo:
    """Raises BodyMalformed."""
    return AclInfo.from_json(JsonObject.parse("rules of a user", command.body, _MAX_BODY_BYTES))

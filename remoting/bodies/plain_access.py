"""Accounts of RocketMQ 4's access control, and the rules of version 5 that grant the same.

Version 4 keeps accounts in `plain_acl.yml`; codes 50 to 54 change and tell them. An account has a
permission for each topic and group that it names, and one for all others.
Source: RocketMQ's PlainAccessConfig and PlainPermissionManager.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from remoting.bodies.access import MAX_ENTRIES, AclEntry, AclPolicy
from remoting.message.topic_names import DEAD_LETTER_PREFIX, RETRY_PREFIX
from remoting.wire.command import Command
from remoting.wire.errors import BodyMalformed
from remoting.wire.loose_json import JsonValue

CUSTOM: Final = "Custom"
DEFAULT: Final = "Default"

_ALLOW: Final = "Allow"
_DENY: Final = "Deny"
_NOTHING: Final = "DENY"
_WORDS: Final[Mapping[str, tuple[str, ...]]] = {
    "PUB": ("Pub",),
    "SUB": ("Sub",),
    "PUB|SUB": ("Pub", "Sub"),
    "SUB|PUB": ("Pub", "Sub"),
    _NOTHING: (),
}
_WORD_OF: Final = {("Pub",): "PUB", ("Sub",): "SUB", ("Pub", "Sub"): "PUB|SUB", ("All",): "PUB|SUB"}

# What is in these topics was sent to a group, whose permission opens them.
_OF_GROUPS: Final = (RETRY_PREFIX, DEAD_LETTER_PREFIX)


@dataclass(frozen=True, slots=True)
class Permission:
    """A permission for one topic or one group.

    Attributes:
        name: of the topic or the group.
        actions: RocketMQ 5's words; none for DENY.
    """

    name: str
    actions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PlainAccount:
    """An account.

    Attributes:
        access_key: the user's name.
        secret_key: "" if it stays as it is; not shown by `repr`.
        white_address: requests from there are not checked; "" for none.
        is_admin: whether it may do everything.
        topic_default: what it may do to topics that are not named; None if that stays as it is.
        group_default: the same of groups.
        topics, groups: those that are named.
    """

    access_key: str
    secret_key: str = field(default="", repr=False)
    white_address: str = ""
    is_admin: bool = False
    topic_default: tuple[str, ...] | None = None
    group_default: tuple[str, ...] | None = None
    topics: tuple[Permission, ...] = ()
    groups: tuple[Permission, ...] = ()

    def policies(self, *, is_whole: bool) -> list[AclPolicy]:
        """Return rules of version 5 that grant the same.

        Version 4 asks the permission for all others only if a name is not given; version 5 also if
        what is given does not mention an action. So a name of which less is permitted than of all
        others gets a denial among the `Default` rules as well.

        Args:
            is_whole: whether the permission for all others is in this account, and not in an
                earlier or a later request.
        """
        own: list[AclEntry] = []
        default: list[AclEntry] = []
        for kind, named, others in (
            ("Topic", self.topics, self.topic_default),
            ("Group", self.groups, self.group_default),
        ):
            most = set(others or ()) if is_whole else {"Pub", "Sub"}
            for one in named:
                own.append(_entry(f"{kind}:{one.name}", one.actions))
                if one.actions and not most <= set(one.actions):
                    default.append(_entry(f"{kind}:{one.name}", ()))
            if others is not None:
                default.append(_entry(f"{kind}:*", others))
        both = (AclPolicy(CUSTOM, tuple(own)), AclPolicy(DEFAULT, tuple(default)))
        return [policy for policy in both if policy.entries]


def _entry(resource: str, actions: tuple[str, ...]) -> AclEntry:
    if actions:
        return AclEntry(resource, actions, (), _ALLOW)
    return AclEntry(resource, ("All",), (), _DENY)


def read_account(command: Command) -> PlainAccount:
    """Read the account that a request (50) creates or changes. Raises FieldMissing,
    BodyMalformed.
    """
    texts = {name: text.strip() for name, text in command.fields.items()}
    topics = _listed(texts.get("topicPerms", ""))
    groups = _listed(texts.get("groupPerms", ""))
    for what, items in (("topicPerms", topics), ("groupPerms", groups)):
        if len(items) > MAX_ENTRIES:
            raise BodyMalformed(what, f"{len(items)} permissions, at most {MAX_ENTRIES} are read")
    return account_of(
        {**texts, "accessKey": command.text("accessKey")}, topics, groups, command.boolean("admin")
    )


def account_of(
    texts: Mapping[str, str], topics: Sequence[str], groups: Sequence[str], is_admin: bool
) -> PlainAccount:
    """Make an account of its words: "orders=PUB|SUB" for each topic and group.

    Raises BodyMalformed, which names the member.
    """

    def default(member: str) -> tuple[str, ...] | None:
        word = texts.get(member, "")
        return _actions(member, word) if word else None

    return PlainAccount(
        texts["accessKey"],
        texts.get("secretKey", ""),
        texts.get("whiteRemoteAddress", ""),
        is_admin,
        default("defaultTopicPerm"),
        default("defaultGroupPerm"),
        _permissions("topicPerms", topics),
        _permissions("groupPerms", groups),
    )


def _listed(text: str) -> list[str]:
    return [part for part in text.split(",") if part.strip()]


def _permissions(member: str, texts: Iterable[str]) -> tuple[Permission, ...]:
    found: dict[str, Permission] = {}
    for text in texts:
        name, separator, word = text.partition("=")
        name = name.strip()
        if not separator or not name:
            raise BodyMalformed(member, f"{text!r:.80}: give a name, = and a permission")
        if name in found:
            raise BodyMalformed(member, f"{name!r:.80} stands twice")
        if name.startswith(_OF_GROUPS):
            raise BodyMalformed(member, f"{name!r:.80} belongs to its group: name that, with SUB")
        if "*" in name or len(name) > 127:
            raise BodyMalformed(member, f"{name!r:.80}: give a whole name")
        found[name] = Permission(name, _actions(member, word))
    return tuple(found.values())


def _actions(member: str, word: str) -> tuple[str, ...]:
    actions = _WORDS.get(word.strip())
    if actions is None:
        raise BodyMalformed(member, f"{word!r:.40}: give DENY, PUB, SUB or PUB|SUB")
    return actions


def account_to_json(
    user: str, *, is_admin: bool, own: Iterable[AclEntry], default: Iterable[AclEntry]
) -> dict[str, JsonValue]:
    """Return a user as an account, without its secret and without rules that version 4 has no
    words for: patterns, networks, and other actions.
    """
    told: dict[str, list[JsonValue]] = {"Topic": [], "Group": []}
    others = {"Topic": _NOTHING, "Group": _NOTHING}
    for entry in own:
        kind, _, name = entry.resource.partition(":")
        word = _word_of(entry)
        if word is not None and kind in told and not name.endswith("*"):
            told[kind].append(f"{name}={word}")
    for entry in default:
        kind, _, name = entry.resource.partition(":")
        word = _word_of(entry)
        if word is not None and kind in others and name == "*":
            others[kind] = word
    return {
        "accessKey": user,
        "admin": is_admin,
        "defaultTopicPerm": others["Topic"],
        "defaultGroupPerm": others["Group"],
        "topicPerms": told["Topic"],
        "groupPerms": told["Group"],
    }


def _word_of(entry: AclEntry) -> str | None:
    if entry.source_ips:
        return None
    if entry.decision == _DENY:
        return _NOTHING if entry.actions == ("All",) else None
    return _WORD_OF.get(tuple(sorted(entry.actions)))

"""Users of brokers with access control, and the rules for them."""

from collections.abc import Sequence
from typing import Final

from dledger_mq.admin.leaders import Leaders
from dledger_mq.connection import requests
from dledger_mq.connection.client import Client
from remoting.bodies.access import (
    DISABLED,
    ENABLED,
    NORMAL,
    SUBJECT_PREFIX,
    SUPER,
    AclEntry,
    AclInfo,
    AclPolicy,
    UserInfo,
)
from remoting.bodies.json_object import JsonObject
from remoting.wire.codes import RequestCode
from remoting.wire.command import Command
from remoting.wire.loose_json import LARGE, compact_json, parse_json

_CUSTOM: Final = "Custom"


class Users:
    """The users of all groups of brokers. Each group has users of its own, which stay equal.

    Calls raise `RequestRefused` when a broker refuses, `NoMaster` if a group has no leader for
    10 s, and `NameServersUnreachable`.
    """

    def __init__(self, client: Client) -> None:
        self._leaders = Leaders(client)

    async def create(self, name: str, secret: str, *, is_super: bool = False) -> None:
        """Create a user; it may do nothing until it has rules, unless it is a super user."""
        user = UserInfo(name, secret, SUPER if is_super else NORMAL, ENABLED)
        await self._ask(RequestCode.AUTH_CREATE_USER, "make a user", user.to_json(), username=name)

    async def change(
        self,
        name: str,
        *,
        secret: str = "",
        is_enabled: bool | None = None,
        is_super: bool | None = None,
    ) -> None:
        """Give a user another secret, switch it on or off, or make it a super user or none; what is
        not given stays.
        """
        status = "" if is_enabled is None else (ENABLED if is_enabled else DISABLED)
        kind = "" if is_super is None else (SUPER if is_super else NORMAL)
        user = UserInfo(name, secret, kind, status)
        what = "change a user"
        await self._ask(RequestCode.AUTH_UPDATE_USER, what, user.to_json(), username=name)

    async def delete(self, name: str) -> None:
        """Delete a user with its rules."""
        await self._ask(RequestCode.AUTH_DELETE_USER, "remove a user", username=name)

    async def all(self) -> dict[str, UserInfo]:
        """Return the users by name, without secrets."""
        replies = await self._ask(RequestCode.AUTH_LIST_USER, "list users")
        found = [UserInfo.from_json(one) for one in _objects("users", replies)]
        return {user.username: user for user in sorted(found, key=lambda user: user.username)}

    async def put_rule(self, name: str, rule: AclEntry) -> None:
        """Give a user a rule, which replaces the one for the same resource."""
        await self.put_rules(name, AclPolicy(_CUSTOM, (rule,)))

    async def put_rules(self, name: str, policy: AclPolicy) -> None:
        """Give a user rules of a policy, up to 200. Each replaces the one for the same resource."""
        subject = SUBJECT_PREFIX + name
        acl = AclInfo(subject, (policy,))
        what = "change the rules of a user"
        await self._ask(RequestCode.AUTH_UPDATE_ACL, what, acl.to_json(), subject=subject)

    async def delete_rule(self, name: str, resource: str, *, policy_type: str = _CUSTOM) -> None:
        """Take the rule for a resource from a user."""
        await self._ask(
            RequestCode.AUTH_DELETE_ACL,
            "remove a rule",
            subject=SUBJECT_PREFIX + name,
            policyType=policy_type,
            resource=resource,
        )

    async def rules(self) -> list[AclInfo]:
        """Return the rules of all users."""
        replies = await self._ask(RequestCode.AUTH_LIST_ACL, "list rules")
        found = {acl.subject: acl for acl in map(AclInfo.from_json, _objects("rules", replies))}
        return [found[subject] for subject in sorted(found)]

    async def _ask(
        self, code: RequestCode, what: str, body: object = None, **fields: str
    ) -> Sequence[Command]:
        content = b"" if body is None else compact_json(body).encode()
        replies = await self._leaders.ask_each(requests.command(code, content, **fields), what)
        return list(replies.values())


def _objects(what: str, replies: Sequence[Command]) -> list[JsonObject]:
    """Raises BodyMalformed."""
    values = [parse_json(what, reply.body, size=LARGE) for reply in replies if reply.body]
    return [JsonObject(what, one) for value in values if isinstance(value, list) for one in value]

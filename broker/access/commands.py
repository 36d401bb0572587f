"""The log's commands that change users and the rules for them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Final, TypeAlias, TypeVar

from broker.access.rules import Rule
from broker.access.state import ACCESS, Access, RuleKey, User
from broker.log.command_layout import Form, text
from broker.log.entry import USERS_VERSION
from broker.log.folded import EntryRefused, Folded
from broker.log.state import BrokerState, CommandType
from dledger import Entry

# Each takes some hundred bytes in memory and in a snapshot.
MAX_USERS: Final = 10_000
MAX_RULES_OF_USER: Final = 1_000
MAX_RULES: Final = 100_000


@dataclass(frozen=True, slots=True)
class SealedSecret:
    """A user's secret, sealed. Tools that show the log do not show it."""

    sealed: str

    def as_dict(self) -> dict[str, object]:
        return {"sealed": True}


@dataclass(frozen=True, slots=True)
class PutUser:
    """Create a user, or change it. What is None stays as it is.

    `only_if`: True if the user must be there, False if it must not.
    """

    kind: ClassVar[int] = 35
    since: ClassVar[int] = USERS_VERSION

    name: str
    secret: Annotated[
        SealedSecret | None,
        Form(
            lambda value: None if value is None else SealedSecret(text(value)),
            lambda secret: None if secret is None else secret.sealed,
        ),
    ]
    is_super: bool | None
    is_enabled: bool | None
    only_if: bool | None


@dataclass(frozen=True, slots=True)
class DeleteUser:
    """Delete a user with its rules."""

    kind: ClassVar[int] = 36
    since: ClassVar[int] = USERS_VERSION

    name: str


@dataclass(frozen=True, slots=True)
class PutRules:
    """Give a user rules. A rule replaces the one for the same resource."""

    kind: ClassVar[int] = 37
    since: ClassVar[int] = USERS_VERSION

    user: str
    policy: str
    rules: Sequence[Rule]


@dataclass(frozen=True, slots=True)
class DeleteRules:
    """Take rules from a user. `policy`, `resource`: "" for every one."""

    kind: ClassVar[int] = 38
    since: ClassVar[int] = USERS_VERSION

    user: str
    policy: str
    resource: str


AccessCommand: TypeAlias = PutUser | DeleteUser | PutRules | DeleteRules


def why_not(access: Access, command: AccessCommand) -> str | None:
    """Return why a change is refused in this state, or None."""
    match command:
        case PutUser():
            return _why_not_put(access, command)
        case DeleteUser(name):
            if name not in access.users:
                return f"there is no user {name}"
        case PutRules(user, policy, rules):
            if user not in access.users:
                return f"there is no user {user}"
            present = access.keys.get(user, {})
            new = len({(user, policy, rule.resource) for rule in rules} - present.keys())
            if len(present) + new > MAX_RULES_OF_USER or len(access.rules) + new > MAX_RULES:
                return f"user {user} has {len(present)} rules: delete some first"
        case DeleteRules(user):
            if not _chosen(access, command):
                return f"user {user} has no such rule"
    return None


def _why_not_put(access: Access, command: PutUser) -> str | None:
    name, before = command.name, access.users.get(command.name)
    if command.only_if is True and before is None:
        return f"there is no user {name}"
    if command.only_if is False and before is not None:
        return f"there is a user {name}: update it"
    if before is None and len(access.users) >= MAX_USERS:
        return f"there are {len(access.users)} users: delete one first"
    if before is None and command.secret is None:
        return f"user {name} has no secret"
    return None


def _chosen(access: Access, command: DeleteRules) -> list[RuleKey]:
    """Return the keys of the rules that a command deletes."""
    return [
        key
        for key in access.keys.get(command.user, ())
        if command.policy in ("", key[1]) and command.resource in ("", key[2])
    ]


def _put_user(access: Access, command: PutUser) -> None:
    user = access.users.get(command.name) or User("", is_super=False, is_enabled=True)
    access.users[command.name] = User(
        user.sealed if command.secret is None else command.secret.sealed,
        user.is_super if command.is_super is None else command.is_super,
        user.is_enabled if command.is_enabled is None else command.is_enabled,
    )


def _put_rules(access: Access, command: PutRules) -> None:
    for rule in command.rules:
        access.put_rule(command.user, command.policy, rule)


def _delete_rules(access: Access, command: DeleteRules) -> None:
    for key in _chosen(access, command):
        access.drop_rule(key)


C = TypeVar("C", PutUser, DeleteUser, PutRules, DeleteRules)


def _changing(command: type[C], change: Callable[[Access, C], None]) -> CommandType[C]:
    """Return the type of a command whose fold refuses it by `why_not`, or makes the change."""

    def fold(state: BrokerState, _folded: Folded, command: C, _entry: Entry) -> EntryRefused | None:
        access = state[ACCESS]
        if (why := why_not(access, command)) is not None:
            return EntryRefused(why)
        change(access, command)
        access.access_changes += 1
        return None

    return CommandType(command, fold)


PUT_USER: Final = _changing(PutUser, _put_user)
DELETE_USER: Final = _changing(DeleteUser, lambda access, command: access.drop_user(command.name))
PUT_RULES: Final = _changing(PutRules, _put_rules)
DELETE_RULES: Final = _changing(DeleteRules, _delete_rules)

"""The users of a cluster and the rules for them."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from broker.access.rules import Policy, Rule
from broker.log.state import Rows, StatePart


class User(NamedTuple):
    """One user.

    Attributes:
        sealed: its secret, sealed by the key of `AccessFile`, which is not in the log.
        is_super: whether it may do everything.
        is_enabled: whether it may do anything.
    """

    sealed: str
    is_super: bool
    is_enabled: bool


# A user, a policy and a resource: there is one rule for them.
RuleKey = tuple[str, str, str]


@dataclass(slots=True)
class Access:
    """Users and rules.

    Attributes:
        users: by name.
        rules: of all users.
        keys: of the rules, by user.
        access_changes: how many entries have changed any of them.
    """

    users: dict[str, User] = field(default_factory=dict)
    rules: dict[RuleKey, Rule] = field(default_factory=dict)
    keys: dict[str, dict[RuleKey, None]] = field(default_factory=dict)
    access_changes: int = 0

    def rules_of(self, name: str, policy: Policy) -> list[Rule]:
        return [self.rules[key] for key in self.keys.get(name, ()) if key[1] == policy]

    def drop_user(self, name: str) -> None:
        del self.users[name]
        for key in self.keys.pop(name, ()):
            del self.rules[key]

    def put_rule(self, name: str, policy: str, rule: Rule) -> None:
        key = (name, policy, rule.resource)
        self.rules[key] = rule
        self.keys.setdefault(name, {})[key] = None

    def drop_rule(self, key: RuleKey) -> None:
        name = key[0]
        del self.rules[key], self.keys[name][key]
        if not self.keys[name]:
            del self.keys[name]


def _captured_users(access: Access) -> Iterator[object]:
    users = list(access.users.items())
    return ([name, *user] for name, user in users)


def _take_users(access: Access, rows: list[Any]) -> None:
    for name, sealed, is_super, is_enabled in rows:
        access.users[str(name)] = User(str(sealed), bool(is_super), bool(is_enabled))


def _captured_rules(access: Access) -> Iterator[object]:
    rules = list(access.rules.items())
    return ([name, policy, *rule] for (name, policy, _resource), rule in rules)


def _take_rules(access: Access, rows: list[Any]) -> None:
    for name, policy, *texts in rows:
        access.put_rule(str(name), str(policy), Rule(*map(str, texts)))


ACCESS: Final = StatePart(
    "access",
    Access,
    numbers=("access_changes",),
    rows=(
        Rows("users", _captured_users, _take_users),
        Rows("access rules", _captured_rules, _take_rules),
    ),
)

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


# The rules of a user: one for each policy and resource.
RulesOfUser = dict[tuple[str, str], Rule]


@dataclass(slots=True)
class Access:
    """Users and rules.

    Attributes:
        users: by name.
        rules: by the user's name.
        access_changes: how many entries have changed any of them.
    """

    users: dict[str, User] = field(default_factory=dict)
    rules: dict[str, RulesOfUser] = field(default_factory=dict)
    access_changes: int = 0

    @property
    def rule_count(self) -> int:
        return sum(map(len, self.rules.values()))

    def rules_of(self, name: str, policy: Policy) -> list[Rule]:
        return [rule for (of, _), rule in self.rules.get(name, {}).items() if of == policy]


def _captured_users(access: Access) -> Iterator[object]:
    users = list(access.users.items())
    return ([name, *user] for name, user in users)


def _take_users(access: Access, rows: list[Any]) -> None:
    for name, sealed, is_super, is_enabled in rows:
        access.users[str(name)] = User(str(sealed), bool(is_super), bool(is_enabled))


def _captured_rules(access: Access) -> Iterator[object]:
    rules = [
        [name, policy, *rule]
        for name, of_user in access.rules.items()
        for (policy, _), rule in of_user.items()
    ]
    return iter(rules)


def _take_rules(access: Access, rows: list[Any]) -> None:
    for name, policy, *texts in rows:
        rule = Rule(*map(str, texts))
        access.rules.setdefault(str(name), {})[str(policy), rule.resource] = rule


ACCESS: Final = StatePart(
    "access",
    Access,
    numbers=("access_changes",),
    rows=(
        Rows("users", _captured_users, _take_users),
        Rows("access rules", _captured_rules, _take_rules),
    ),
)

"""Accounts of RocketMQ 4 as rules of version 5: both must permit the same."""

from __future__ import annotations

from itertools import product

import pytest

from broker.access.rules import Fitting, Policy, is_granted, policy_of, read_rule, rule_of
from broker.serving.needs import Action, Kind, Need
from remoting.bodies.access import AclEntry, AclPolicy
from remoting.bodies.plain_access import PlainAccount, account_of, account_to_json, read_account
from remoting.wire.command import Command
from remoting.wire.errors import BodyMalformed, FieldMissing

WORDS = ("DENY", "PUB", "SUB", "PUB|SUB")


def fitting(policies: list[AclPolicy]) -> dict[Policy, list[Fitting]]:
    found: dict[Policy, list[Fitting]] = {Policy.CUSTOM: [], Policy.DEFAULT: []}
    for policy in policies:
        for one in policy.entries:
            rule = rule_of(one.resource, one.actions, one.source_ips, one.decision)
            found[policy_of(policy.policy_type)].append(read_rule(rule))
    return found


@pytest.mark.parametrize("is_whole", [True, False])
def test_rules_grant_what_version_4_grants(is_whole: bool) -> None:
    """For a named topic its own permission counts alone, and for others the one for all others."""
    for named, others in product(WORDS, (*WORDS, "")):
        texts = {"accessKey": "u", "defaultTopicPerm": others, "defaultGroupPerm": others}
        account = account_of(texts, [f"T={named}"], [f"T={named}"], False)
        rules = fitting(account.policies(is_whole=is_whole))
        for kind, (name, word), action in product(
            (Kind.TOPIC, Kind.GROUP), (("T", named), ("other", others)), (Action.PUB, Action.SUB)
        ):
            need = Need(frozenset({action}), kind, name)
            granted = is_granted(rules[Policy.CUSTOM], rules[Policy.DEFAULT], need, "10.0.0.1")
            assert granted == (action.upper() in word.split("|")), (named, others, need)


def test_a_request_is_read_with_its_lists() -> None:
    fields = {"accessKey": "u", "topicPerms": "a=PUB, b = SUB|PUB,", "admin": "true"}
    account = read_account(Command(50, fields))
    assert account == PlainAccount(
        "u", is_admin=True, topics=account.topics, groups=(), topic_default=None
    )
    assert [(one.name, one.actions) for one in account.topics] == [
        ("a", ("Pub",)),
        ("b", ("Pub", "Sub")),
    ]
    assert "hidden" not in repr(PlainAccount("u", "hidden"))


@pytest.mark.parametrize(
    "fields",
    [
        {"topicPerms": "a"},
        {"topicPerms": "=PUB"},
        {"topicPerms": "a=ANY"},
        {"topicPerms": "a=PUB,a=SUB"},
        {"topicPerms": "a*=PUB"},
        {"topicPerms": 128 * "a" + "=PUB"},
        {"groupPerms": "a=pub"},
        {"groupPerms": "%RETRY%g=SUB"},
        {"topicPerms": ",".join(f"t{number}=PUB" for number in range(201))},
        {"defaultTopicPerm": "ALL"},
        {"defaultGroupPerm": "PUB|"},
    ],
)
def test_a_permission_that_version_4_does_not_know_is_refused(fields: dict[str, str]) -> None:
    with pytest.raises(BodyMalformed):
        read_account(Command(50, {"accessKey": "u", **fields}))


def test_an_account_without_a_name_is_refused() -> None:
    with pytest.raises(FieldMissing):
        read_account(Command(50, {"topicPerms": "a=PUB"}))


def test_what_version_4_has_no_words_for_is_left_out() -> None:
    own = (
        AclEntry("Topic:a", ("Pub", "Sub")),
        AclEntry("Topic:b", ("All",), (), "Deny"),
        AclEntry("Topic:c*", ("Pub",)),
        AclEntry("Topic:d", ("Pub",), ("10.0.0.0/8",)),
        AclEntry("Topic:e", ("Create",)),
        AclEntry("Topic:f", ("Pub",), (), "Deny"),
        AclEntry("Group:g", ("Sub",)),
        AclEntry("Cluster:*", ("All",)),
        AclEntry("*", ("All",)),
    )
    default = (AclEntry("Topic:*", ("Sub",)), AclEntry("Group:g", ("Sub",)))
    assert account_to_json("u", is_admin=False, own=own, default=default) == {
        "accessKey": "u",
        "admin": False,
        "defaultTopicPerm": "SUB",
        "defaultGroupPerm": "DENY",
        "topicPerms": ["a=PUB|SUB", "b=DENY"],
        "groupPerms": ["g=SUB"],
    }

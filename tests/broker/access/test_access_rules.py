"""What rules grant: against a reader of them that knows no shortcuts, and against hostile words."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from broker.access.rules import Policy, Rule, is_granted, policy_of, read_rule, rule_of
from broker.errors import RequestRefused
from broker.serving.needs import Action, Kind, Need
from broker.topics.names import HALF_TOPIC
from broker.topics.needs import topic_need

NAMES = ("", "o", "or", "orders", "orders1", "b")
HOSTS = ("10.0.0.7", "10.9.0.7", "192.168.1.1", "::1", "fe80::1%eth0", "::ffff:10.0.0.7")
SOURCES = ("10.0.0.0/16", "10.0.0.7", "::/0", "192.168.1.0/24")

PUB_ORDERS = Need(frozenset({Action.PUB}), Kind.TOPIC, "orders")

resources = st.one_of(
    st.just("*"),
    st.builds(
        lambda kind, name, star: f"{kind}:{name}{star}" if name or star else f"{kind}:x",
        st.sampled_from(list(Kind)),
        st.sampled_from(NAMES),
        st.sampled_from(["", "*"]),
    ),
)
rules = st.builds(
    rule_of,
    resources,
    st.lists(st.sampled_from([*Action, "All"]), min_size=1, max_size=3),
    st.lists(st.sampled_from(SOURCES), max_size=2),
    st.sampled_from(["Allow", "Deny"]),
)
needs = st.builds(
    Need,
    st.frozensets(st.sampled_from(list(Action)), min_size=1, max_size=2),
    st.sampled_from(list(Kind)),
    st.sampled_from([name for name in NAMES if name]),
)


def fits(rule: Rule, need: Need, host: str) -> bool:
    """Whether a rule is about a request, read word by word."""
    asked = {str(action) for action in need.actions}
    if rule.actions != "All" and not asked & set(rule.actions.split(",")):
        return False
    if rule.resource != "*":
        kind, name = rule.resource.split(":", 1)
        if kind != need.kind:
            return False
        if name.endswith("*"):
            if need.name[: len(name) - 1] != name[:-1]:
                return False
        elif name != need.name:
            return False
    if not rule.sources:
        return True
    address = ipaddress.ip_address(host.split("%", maxsplit=1)[0])
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return any(address in ipaddress.ip_network(one) for one in rule.sources.split(","))


def judged(own: list[Rule], default: list[Rule], need: Need, host: str) -> bool:
    """Literal names first, then patterns from the longest to the shortest, a kind before none."""
    steps = [f"{need.kind}:{need.name}"]
    steps += [f"{need.kind}:{need.name[:length]}*" for length in range(len(need.name), -1, -1)]
    steps.append("*")
    for policy in (own, default):
        for resource in steps:
            about = [rule for rule in policy if rule.resource == resource]
            decisions = {rule.decision for rule in about if fits(rule, need, host)}
            if decisions:
                return decisions == {"Allow"}
    return False


@given(st.lists(rules, max_size=5), st.lists(rules, max_size=3), needs, st.sampled_from(HOSTS))
@example([], [], PUB_ORDERS, "10.0.0.7")
@example(
    [rule_of("Topic:o*", ["All"], [], decision) for decision in ("Allow", "Deny", "Allow")],
    [],
    PUB_ORDERS,
    "10.0.0.7",
)
def test_rules_grant_what_a_reader_of_each_step_finds(
    own: list[Rule], default: list[Rule], need: Need, host: str
) -> None:
    found = is_granted(list(map(read_rule, own)), list(map(read_rule, default)), need, host)
    assert found is judged(own, default, need, host)


@given(rules)
def test_a_rule_in_its_canonical_form_stays_as_it_is(rule: Rule) -> None:
    again = rule_of(rule.resource, [rule.actions], [rule.sources], rule.decision)
    assert again == rule


@pytest.mark.parametrize("host", ["10.0.0.7", "::ffff:10.0.0.7"])
def test_a_network_of_mapped_addresses_is_one_of_ipv4(host: str) -> None:
    anywhere = rule_of("Topic:orders", ["All"], [], "Allow")
    for source in ("::ffff:10.0.0.7", "::ffff:a00:0/120"):
        denial = rule_of("Topic:orders", ["All"], [source], "Deny")
        as_stored_before = denial._replace(sources=str(ipaddress.ip_network(source)))
        for rule in (denial, as_stored_before):
            both = [read_rule(anywhere), read_rule(rule)]
            assert not is_granted(both, [], PUB_ORDERS, host)
            assert is_granted(both, [], PUB_ORDERS, "10.1.0.7")
    assert denial.sources == "10.0.0.0/24"


@pytest.mark.parametrize(
    ("resource", "actions", "sources", "decision"),
    [
        ("", ["Pub"], [], "Allow"),
        ("orders", ["Pub"], [], "Allow"),
        ("Queue:orders", ["Pub"], [], "Allow"),
        ("Topic:", ["Pub"], [], "Allow"),
        ("Topic:or*ders", ["Pub"], [], "Allow"),
        ("Topic:a,b", ["Pub"], [], "Allow"),
        ("Topic:a b", ["Pub"], [], "Allow"),
        ("Topic:" + 200 * "a", ["Pub"], [], "Allow"),
        ("Topic:a\nb", ["Pub"], [], "Allow"),
        ("Topic:a", [], [], "Allow"),
        ("Topic:a", ["Publish"], [], "Allow"),
        ("Topic:a", ["Pub"], ["10.0.0.0/99"], "Allow"),
        ("Topic:a", ["Pub"], ["everywhere"], "Allow"),
        ("Topic:a", ["Pub"], 33 * ["10.0.0.1"], "Allow"),
        ("Topic:a", ["Pub"], [], "Perhaps"),
    ],
)
def test_a_rule_that_says_nothing_is_refused(
    resource: str, actions: list[str], sources: list[str], decision: str
) -> None:
    with pytest.raises(RequestRefused) as refused:
        rule_of(resource, actions, sources, decision)
    assert refused.value.code == 29
    assert len(refused.value.remark) < 300


def test_words_count_whatever_their_case_and_star_as_a_source_is_all() -> None:
    rule = rule_of("topic:Orders", ["pub, SUB"], ["*"], "ALLOW")
    assert rule == Rule("Topic:Orders", "Pub,Sub", "", "Allow")
    assert policy_of("") is policy_of("custom") is Policy.CUSTOM


def test_no_pattern_means_the_topics_where_the_messages_of_all_topics_wait() -> None:
    need = topic_need(HALF_TOPIC, Action.SUB)
    for resource, is_meant in (("*", False), ("Topic:*", False), (f"Topic:{HALF_TOPIC}", True)):
        rule = read_rule(rule_of(resource, ["All"], [], "Allow"))
        assert is_granted([rule], [], need, "10.0.0.7") is is_meant


def test_retry_and_dead_letter_topics_belong_to_their_group() -> None:
    need = Need(frozenset({Action.SUB}), Kind.GROUP, "readers")
    for topic in ("%RETRY%readers", "%DLQ%readers"):
        assert topic_need(topic, Action.SUB) == topic_need(topic, Action.PUB) == need

"""Decides what the rules of a user grant. Pure.

Source: RocketMQ's access control 2.0. Of all rules that fit a request's resource, action and
address, the most specific one counts: a name before a pattern, a longer pattern before a shorter
one. Of equally specific ones a denial counts. The user's own rules (`Custom`) go before its
`Default` ones: these are asked if no own rule fits. Without a fitting rule a request is refused.
RocketMQ 5.3 asks shorter patterns and grants first.
"""

import ipaddress
from collections.abc import Iterable, Sequence
from enum import StrEnum
from functools import lru_cache
from typing import Final, NamedTuple

from broker.errors import RequestRefused
from broker.serving.needs import Action, Kind, Need
from broker.topics.names import SEND_FORBIDDEN
from remoting.net.networks import Network, parse_network

ANY: Final = "*"
_ALL_ACTIONS: Final = "All"

# A resource is a kind and a name, which may be as long as a topic's.
MAX_RESOURCE_CHARACTERS: Final = 160
# A rule for a few networks is usual; each is looked at when a request is judged for the first time.
MAX_SOURCES: Final = 32


class Decision(StrEnum):
    ALLOW = "Allow"
    DENY = "Deny"


class Policy(StrEnum):
    """Which rules go first: `CUSTOM`."""

    CUSTOM = "Custom"
    DEFAULT = "Default"


class Rule(NamedTuple):
    """A rule in its canonical form, as the log has it.

    Attributes:
        resource: "Topic:orders", "Group:billing*", "Cluster:*" or "*".
        actions: RocketMQ's words, with commas; "All" for all.
        sources: networks of the clients for which it holds, with commas; "" for all.
        decision: "Allow" or "Deny".
    """

    resource: str
    actions: str
    sources: str
    decision: str


class Fitting(NamedTuple):
    """A rule, read.

    Attributes:
        kind: None for every kind.
        name: the whole name, or its beginning.
        is_pattern: whether `name` is a beginning.
    """

    kind: Kind | None
    name: str
    is_pattern: bool
    actions: frozenset[Action]
    sources: tuple[Network, ...]
    is_allowed: bool

    @property
    def specificity(self) -> tuple[bool, bool, int, bool]:
        """The greatest one counts."""
        return (not self.is_pattern, self.kind is not None, len(self.name), not self.is_allowed)

    def fits(self, need: Need, address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
        if self.actions.isdisjoint(need.actions):
            return False
        if self.kind is not None and self.kind is not need.kind:
            return False
        if self.is_pattern:
            # What waits there are messages of all topics: no pattern of topics means it.
            if need.kind is Kind.TOPIC and need.name in SEND_FORBIDDEN:
                return False
            if not need.name.startswith(self.name):
                return False
        elif need.name != self.name:
            return False
        return not self.sources or any(address in network for network in self.sources)


def rule_of(resource: str, actions: Iterable[str], sources: Iterable[str], decision: str) -> Rule:
    """Return a rule in its canonical form. Raises RequestRefused (29)."""
    return Rule(
        _canonical_resource(resource),
        _canonical_actions(actions),
        _canonical_sources(sources),
        _word(Decision, decision, "decision"),
    )


@lru_cache(maxsize=20_000)  # of some 500 bytes; after a change most rules are as before
def read_rule(rule: Rule) -> Fitting:
    """Read a rule of the log. Raises ValueError: a broker of another version has written it."""
    kind, _, name = rule.resource.rpartition(":")
    actions = frozenset(Action)
    if rule.actions != _ALL_ACTIONS:
        actions = frozenset(map(Action, rule.actions.split(",")))
    return Fitting(
        Kind(kind) if kind else None,
        name.removesuffix(ANY),
        name.endswith(ANY),
        actions,
        tuple(map(parse_network, filter(None, rule.sources.split(",")))),
        Decision(rule.decision) is Decision.ALLOW,
    )


def is_granted(own: Sequence[Fitting], default: Sequence[Fitting], need: Need, host: str) -> bool:
    """Return whether rules grant a need to a client at this IP address."""
    address = ipaddress.ip_address(host.partition("%")[0])
    mapped = getattr(address, "ipv4_mapped", None)
    for rules in (own, default):
        fitting = [rule for rule in rules if rule.fits(need, mapped or address)]
        if fitting:
            return max(fitting, key=lambda rule: rule.specificity).is_allowed
    return False


def policy_of(text: str) -> Policy:
    """Read the type of a policy; "" is Custom. Raises RequestRefused (29)."""
    return Policy(_word(Policy, text or Policy.CUSTOM, "policyType"))


def _canonical_resource(text: str) -> str:
    kind, separator, name = text.partition(":")
    if text == ANY:
        return ANY
    if not separator or len(text) > MAX_RESOURCE_CHARACTERS or not text.isprintable():
        raise _bad("resource", text, "give *, Topic:name, Group:name or Cluster:name")
    if not name or ANY in name[:-1] or " " in name or "," in name:
        raise _bad("resource", text, "give a name, the beginning of one and *, or *")
    return f"{_word(Kind, kind, 'resource')}:{name}"


def _canonical_actions(texts: Iterable[str]) -> str:
    words = {part.strip() for text in texts for part in text.split(",")}
    if _ALL_ACTIONS.lower() in {word.lower() for word in words}:
        return _ALL_ACTIONS
    if not words:
        raise _bad("actions", "", "give All, or one of " + ", ".join(Action))
    return ",".join(sorted(_word(Action, word, "actions") for word in words))


def _canonical_sources(texts: Iterable[str]) -> str:
    parts = [part.strip() for text in texts for part in text.split(",") if part.strip()]
    if len(parts) > MAX_SOURCES:
        raise _bad("sourceIps", f"{len(parts)} networks", f"at most {MAX_SOURCES}")
    if ANY in parts:
        return ""
    try:
        networks = {str(parse_network(part, strict=False)) for part in parts}
    except ValueError as error:
        raise _bad("sourceIps", str(error), "give addresses or networks, as 10.0.0.0/8") from None
    return ",".join(sorted(networks))


def _word(words: type[StrEnum], text: str, what: str) -> str:
    """Return a word of RocketMQ's, whatever its case. Raises RequestRefused (29)."""
    for word in words:
        if word.lower() == text.strip().lower():
            return str(word)
    raise _bad(what, text, "give " + " or ".join(words))


def _bad(what: str, text: str, cure: str) -> RequestRefused:
    return RequestRefused.invalid(f"{what} {text!r:.80}: {cure}")

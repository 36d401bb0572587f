"""The subscriptions of a consumer group's members, and whether they are equal.

The queues of a group are shared among its members, whatever each subscribes to. If members differ,
a message may be given to one that does not want it, and is lost to the group: RocketMQ's users
notice when messages are missing.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from remoting.bodies.heartbeat import ConsumerData, MessageModel, SubscriptionData
from remoting.message.topic_names import RETRY_PREFIX


class Kind(NamedTuple):
    """The subscriptions of a member.

    Attributes:
        model: whether members share the messages, or each gets all.
        wanted: topics with the type and the text of the filter, without the retry topic, to which
            some clients do not subscribe themselves.
    """

    model: MessageModel
    wanted: frozenset[tuple[str, str, str]]


@dataclass(slots=True)
class Kinds:
    """The kinds of a group's members.

    Attributes:
        counts: how many members are of each kind.
        changes: how often a kind appeared or disappeared.
    """

    counts: dict[Kind, int] = field(default_factory=dict)
    changes: int = 0

    @property
    def differ(self) -> bool:
        return len(self.counts) > 1

    def move(self, old: Kind | None, new: Kind | None) -> bool:
        """Count a member that changes its kind, joins or leaves; return whether a kind came or
        went.
        """
        if old == new:
            return False
        before = self.changes
        if new is not None:
            self.changes += new not in self.counts
            self.counts[new] = self.counts.get(new, 0) + 1
        if old is not None:
            self.counts[old] -= 1
            if not self.counts[old]:
                del self.counts[old]
                self.changes += 1
        return self.changes != before


def kind_of(data: ConsumerData) -> Kind:
    wanted = frozenset(
        _wanted(one) for one in data.subscriptions if not one.topic.startswith(RETRY_PREFIX)
    )
    return Kind(data.message_model, wanted)


def _wanted(subscription: SubscriptionData) -> tuple[str, str, str]:
    """Normalise a subscription: "a || b" means "b||a"."""
    kind, text = subscription.expression_type.upper(), subscription.expression.strip()
    if kind == "TAG":
        tags = {tag.strip() for tag in text.split("||")} - {""}
        text = "*" if "*" in tags or not tags else "||".join(sorted(tags))
    return subscription.topic, kind, text


def words_of(kind: Kind) -> str:
    """Describe a kind, as "Orders=a||b, Returns=*"."""
    shown = [f"{topic}={text}" for topic, _kind, text in sorted(kind.wanted)]
    words = ", ".join(shown) or "nothing"
    return f"{words} (each gets all)" if kind.model is MessageModel.BROADCASTING else words

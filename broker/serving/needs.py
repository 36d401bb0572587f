"""What a request needs: actions on topics, groups and the cluster, which access control grants.

Each `Handler` says what its requests need, by the functions in `topics.needs`. The rules that
grant it are the `access` feature's.
Source: RocketMQ's access control 2.0.
"""

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from remoting.wire.command import Command


class Action(StrEnum):
    """An action, by RocketMQ's word."""

    PUB = "Pub"
    SUB = "Sub"
    CREATE = "Create"
    UPDATE = "Update"
    DELETE = "Delete"
    GET = "Get"
    LIST = "List"

    __hash__ = str.__hash__  # an enum's own is a call of Python for each look-up


class Kind(StrEnum):
    """A kind of resources, by RocketMQ's word."""

    CLUSTER = "Cluster"
    TOPIC = "Topic"
    GROUP = "Group"

    __hash__ = str.__hash__


class Need(NamedTuple):
    """One of these actions on a resource.

    Attributes:
        name: of the topic or the group; "" for this broker's cluster.
        is_of_message: whether it is the topic of a message whose place the client has named. A
            refusal then does not tell the topic, nor whether there is a message.
    """

    actions: frozenset[Action]
    kind: Kind
    name: str
    is_of_message: bool = False

    @property
    def shown(self) -> str:
        """The need in a refusal."""
        if not self.is_of_message:
            return str(self)
        return f"{' or '.join(sorted(self.actions))} on the message's topic, or it is gone"

    def __str__(self) -> str:
        return f"{' or '.join(sorted(self.actions))} on {self.kind} {self.name:.120}".rstrip()


# Returns what a request needs: all of it. None at all is granted to each user. May raise
# FieldMissing, BodyMalformed and RequestRefused.
Needs: TypeAlias = Callable[[Command], Sequence[Need]]


def any_user(_command: Command) -> Sequence[Need]:
    """Need a known user only: the answer tells nothing of others, or the handler asks for more."""
    return ()

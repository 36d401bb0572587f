"""What a feature does for clients, and when it is called."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from broker.errors import RequestRefused
from broker.log.folded import Folded
from broker.serving.origin import Origin
from remoting.net.answering import Steps
from remoting.wire.command import Command

# Returns the reply; or steps to it, when it takes long; or None when it follows later. May raise
# RequestRefused, or an error of remoting that says what is wrong with the request; so may a step.
Answer: TypeAlias = Callable[[Origin, Command], Command | Steps | None]


def _always(_command: Command) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Handler:
    """How requests of one code are answered.

    Attributes:
        answer: answers one.
        any_role: every member answers; else only the leader does.
        confirmed: answered once the group has confirmed this leader. An older offset would have
            messages consumed twice, or taken for lost.
        while_ending: a leader that is about to hand over answers it still. Others would send the
            client to the next leader before there is one.
        is_told: whether a client is told that a member cannot serve its request. To one that
            would take that for an answer, nothing is sent: it asks again.
    """

    answer: Answer
    any_role: bool = False
    confirmed: bool = False
    while_ending: bool = False
    is_told: Callable[[Command], bool] = _always


def _nothing(*_: object) -> None:
    """Stands for what a feature does not need."""


def _at_once() -> bool:
    """Stands for an end that takes no time."""
    return True


@dataclass(frozen=True, kw_only=True, slots=True)
class Service:
    """A feature at work on one member. What is not given does nothing.

    Attributes:
        handlers: by request code.
        begin_term: this member leads, and is ready to serve.
        end_term: it leads no more; what waits is answered with the given refusal.
        ending: this member will soon hand leadership over and end: begin nothing more.
        has_ended: asked while the last answers leave, whether the member may end for this one.
        applied: a run of entries was applied on the leader. Must not raise.
        flush: all requests of one read were looked at, or entries were applied: hand to the log
            what has gathered.
        tick: five times a second, on the leader.
        look_over: every ten seconds, on every member.
        dropped: a client is gone.
        figures: run-time figures by name, for tools.
        tasks: run as long as the broker does.
    """

    handlers: Mapping[int, Handler] = field(default_factory=dict)
    begin_term: Callable[[], None] = _nothing
    end_term: Callable[[RequestRefused], None] = _nothing
    ending: Callable[[], None] = _nothing
    has_ended: Callable[[], bool] = _at_once
    applied: Callable[[Folded], None] = _nothing
    flush: Callable[[], None] = _nothing
    tick: Callable[[], None] = _nothing
    look_over: Callable[[], None] = _nothing
    dropped: Callable[[Origin], None] = _nothing
    figures: Callable[[], Mapping[str, str]] = dict
    tasks: tuple[Callable[[], Awaitable[None]], ...] = ()


Calls = TypeVar("Calls", bound=Callable[..., None])


def doing_something(functions: Iterable[Calls]) -> list[Calls]:
    """Those functions of services that were given."""
    return [one for one in functions if one is not _nothing]

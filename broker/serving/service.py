"""The services of features, and when they are called."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from broker.errors import RequestRefused
from broker.log.folded import Folded
from broker.serving.needs import Needs
from broker.serving.origin import Origin
from remoting.net.answering import Steps
from remoting.wire.command import Command

# Returns the reply, or steps that return it if it takes long, or None if the reply follows later.
# The call and each step may raise RequestRefused, or an error of remoting about the request.
Answer: TypeAlias = Callable[[Origin, Command], Command | Steps | None]


def _always(_command: Command) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Handler:
    """How requests of one code are answered.

    Attributes:
        needs: what access control must grant.
        any_role: whether every member answers, not only the leader.
        confirmed: whether the answer waits until the group has confirmed this leader. An older
            offset would have messages consumed twice, or taken for lost.
        while_ending: whether a leader that is about to hand over still answers. Clients with other
            requests are sent away, even if there is no next leader yet.
        is_audited: whether the log says who asked, with access control: it changes what others use.
            The request is carried out only when that is recorded, so on a leader.
        is_told: whether a client gets a reply if a member cannot serve its request. A client that
            would misread it gets none, and asks again.
    """

    answer: Answer
    needs: Needs
    any_role: bool = False
    confirmed: bool = False
    while_ending: bool = False
    is_audited: bool = False
    is_told: Callable[[Command], bool] = _always


def _nothing(*_: object) -> None: ...


def _at_once() -> bool:
    return True


@dataclass(frozen=True, kw_only=True, slots=True)
class Service:
    """The callbacks of a feature on one member.

    Attributes:
        handlers: by request code.
        begin_term: this member leads, and is ready to serve.
        end_term: it lost leadership; waiting requests are answered with the given refusal.
        ending: this member will soon hand over leadership and end: nothing new may begin.
        has_ended: while the last answers leave: whether this service allows the member to end.
        applied: a run of entries was applied on the leader. Must not raise.
        flush: after the requests of one read, and after an apply: submits gathered entries.
        tick: five times a second, on the leader.
        look_over: every ten seconds, on every member.
        dropped: a client has disconnected.
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
    return [one for one in functions if one is not _nothing]

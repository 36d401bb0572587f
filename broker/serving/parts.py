"""What the features of one broker share."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from broker.config import BrokerConfig
from broker.errors import BrokerError
from broker.log.replicated_log import Log
from broker.log.state import BrokerState
from broker.log.submissions import Then
from broker.serving.queues import Queues
from broker.serving.work_in_steps import WorkInSteps

T = TypeVar("T")

# Registers the topics. Calls its argument once name servers know them or cannot be reached.
Announce = Callable[[Callable[[], None] | None], None]


@dataclass(frozen=True, eq=False)
class Shared(Generic[T]):
    """Names an object that several features use. Each broker has one such object.

    Attributes:
        make: makes the object when it is first used; None if `Parts` is given the object.
    """

    name: str
    make: Callable[["Parts"], T] | None = None


class NotGiven(BrokerError):
    """A feature uses an object that this broker lacks."""

    part: str
    _template = "the broker was given no {part}"


@dataclass(kw_only=True, slots=True)
class Parts:
    """The surroundings of one broker's features, and the objects that they share.

    Each feature is made with all of them, and keeps those that it needs.

    Attributes:
        log: an error in the callback of an append does not end the node.
        announce: registers the topics with the name servers, then calls its argument.
        confirm: calls back when the applied state may be read; see `ConfirmedReads.add`.
        work: runs long work in steps.
        led_term: the term in which this member leads and serves, or None.
        wall_clock_ms: milliseconds since 1970; decides store times.
        clock: seconds on the monotonic clock.
        process_id: makes generated message keys unique.
        figures: the run-time figures of all features, by name.
        made: the shared objects made so far.
    """

    config: BrokerConfig
    log: Log
    state: BrokerState
    queues: Queues
    announce: Announce
    confirm: Callable[[Then], None]
    work: WorkInSteps
    led_term: Callable[[], int | None]
    wall_clock_ms: Callable[[], int]
    clock: Callable[[], float]
    process_id: int
    figures: Callable[[], Mapping[str, str]]
    made: dict[Shared[Any], Any] = field(default_factory=dict)

    def __getitem__(self, shared: Shared[T]) -> T:
        if shared not in self.made:
            if shared.make is None:
                raise NotGiven(shared.name)
            self.made[shared] = shared.make(self)
        found: T = self.made[shared]
        return found

"""What the features of one broker are made of, and share."""

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

# Told when the name servers know the topics as they are now, or cannot be reached.
Announce = Callable[[Callable[[], None] | None], None]


@dataclass(frozen=True, eq=False)
class Shared(Generic[T]):
    """An object that several features use. Each broker has one.

    Attributes:
        name: of the object.
        make: makes it when it is first asked for. Without this, `Parts` is given it.
    """

    name: str
    make: Callable[["Parts"], T] | None = None


class NotGiven(BrokerError):
    """A feature asks for what the broker does not have here.

    Attributes:
        part: the name of it.
    """

    part: str
    _template = "the broker was given no {part}"


@dataclass(kw_only=True, slots=True)
class Parts:
    """The surroundings of one broker's features, and the objects that they share.

    What a feature is made of is given all of them, and takes what it needs when it is made.

    Attributes:
        config: the settings.
        log: the log; what features do with the outcome of an append cannot end the node.
        state: the applied state.
        queues: the consume queues.
        announce: registers the topics with the name servers, then calls what it is given.
        confirm: tells when the applied state may be looked at; see `ConfirmedReads.add`.
        work: takes what is too long for one turn of the loop, in steps.
        led_term: the term this member leads and serves in, or None.
        wall_clock_ms: milliseconds since 1970; decides store times.
        clock: seconds on the monotonic clock.
        process_id: makes generated message keys unique.
        figures: the run-time figures of all features, by name.
        made: the shared objects; those that the parts are given, and those that were asked for.
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
        """The broker's object of this kind. Raises NotGiven."""
        if shared not in self.made:
            if shared.make is None:
                raise NotGiven(shared.name)
            self.made[shared] = shared.make(self)
        found: T = self.made[shared]
        return found

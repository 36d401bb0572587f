"""The state machine that a node drives: the fold, then the consume queues, then whoever waits."""

from collections.abc import Callable, Sequence

from broker.fold import EntryRefused, Folded, fold
from broker.origin import Queues
from broker.state import BrokerState
from dledger.entry import Entry


class BrokerMachine:
    """Implements `dledger.StateMachine`.

    Args:
        queues: the consume queues to keep.

    Attributes:
        state: the folded log.
        queues: the consume queues.
        on_applied: told what each run did, after it is in the state and the queues. Must not
            raise: an error of it would stop the node.
    """

    def __init__(self, queues: Queues) -> None:
        self.state = BrokerState()
        self.queues = queues
        self.on_applied: Callable[[Folded], None] | None = None

    def apply(self, entries: Sequence[Entry]) -> Sequence[EntryRefused | None]:
        """Apply a run of committed entries; one result for each."""
        folded = fold(self.state, entries)
        for topic in folded.deleted_topics:
            self.queues.delete_topic(topic)
        if folded.arrivals:
            self.queues.append(folded.arrivals)
        if self.on_applied is not None:
            self.on_applied(folded)
        return folded.results

"""The log as requests see it: what a request does with an append's outcome cannot end the node.

The log calls back in the node's own turn, where an exception would end the member, and the next
leader's too, if the client asks again.
"""

from collections.abc import Callable, Sequence

from broker.log.one_by_one import call
from broker.log.replicated_log import Log
from dledger import Appended, Body, DLedgerError


class GuardedLog:
    """Implements `broker.log.replicated_log.Log` over another one.

    Attributes:
        submitted: how many appends are under way.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self.submitted = 0

    @property
    def is_ready_leader(self) -> bool:
        """As in `dledger.Node`."""
        return self._log.is_ready_leader

    @property
    def term(self) -> int:
        """As in `dledger.Node`."""
        return self._log.term

    @property
    def max_body_bytes(self) -> int:
        """As in `dledger.Node`."""
        return self._log.max_body_bytes

    @property
    def begin_position(self) -> int:
        """As in `dledger.Node`."""
        return self._log.begin_position

    def submit(
        self, bodies: Sequence[Body], done: Callable[[list[Appended] | DLedgerError], None]
    ) -> None:
        """Append entries; `done` is called once. What it raises is logged, with its traceback: the
        request is a defect of this program, and its client is left without an answer.
        """

        def guarded(outcome: list[Appended] | DLedgerError) -> None:
            self.submitted -= 1
            call("answering a request after its append", done, outcome)

        self.submitted += 1
        try:
            self._log.submit(bodies, guarded)
        except BaseException:
            self.submitted -= 1
            raise

    def read_bytes(self, pos: int, size: int) -> bytes:
        """As in `dledger.Node`."""
        return self._log.read_bytes(pos, size)

    def check_at(self, pos: int) -> None:
        """As in `dledger.Node`."""
        self._log.check_at(pos)

"""A log whose callbacks cannot end the node.

The log calls back in the node's own turn. An exception there would end the member, and the next
leader too, once the client repeats its request.
"""

from collections.abc import Callable, Sequence

from broker.log.one_by_one import call
from broker.log.replicated_log import Log
from dledger import Appended, Body, DLedgerError


class GuardedLog:
    """Implements `broker.log.replicated_log.Log` over another one.

    Attributes:
        submitted: the number of appends in flight.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self.submitted = 0

    @property
    def is_ready_leader(self) -> bool:
        return self._log.is_ready_leader

    @property
    def term(self) -> int:
        return self._log.term

    @property
    def max_body_bytes(self) -> int:
        return self._log.max_body_bytes

    @property
    def begin_position(self) -> int:
        return self._log.begin_position

    def submit(
        self, bodies: Sequence[Body], done: Callable[[list[Appended] | DLedgerError], None]
    ) -> None:
        """Append entries; `done` is called once. If it raises, that is a defect of this program:
        the error is logged with its traceback, and the client gets no answer.
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
        return self._log.read_bytes(pos, size)

    def check_at(self, pos: int) -> None:
        self._log.check_at(pos)

"""Answers that wait until the group confirms that this member has all that was acknowledged.

A leader that was deposed and does not know it would answer from an old state. So it asks the others
first (`Node.read`): one question for all answers that gathered while the one before was under way.
"""

from collections.abc import Awaitable, Callable, Sequence

from broker.errors import RequestRefused
from broker.log.submissions import Then
from broker.serving.work_in_steps import WorkInSteps
from dledger import DLedgerError
from dledger.wake_up import WakeUp


class ConfirmedReads:
    """The answers that wait.

    Args:
        read: `Node.read`: returns when the applied state has all that was acknowledged before.
        limit: how many may wait.
        work: tells those that wait, in steps.
    """

    def __init__(self, read: Callable[[], Awaitable[int]], limit: int, work: WorkInSteps) -> None:
        self._read = read
        self._limit = limit
        self._work = work
        self._waiting: list[Then] = []
        self._wanted = WakeUp()

    def add(self, then: Then) -> None:
        """Have `then` told when the state may be looked at, or why it may not; not at once.

        Raises RequestRefused (2): too many wait.
        """
        if len(self._waiting) >= self._limit:
            raise RequestRefused.busy(f"[OVERLOAD]{self._limit} reads wait: ask again later")
        self._waiting.append(then)
        self._wanted.set()

    async def run(self) -> None:
        """Ask the group, for ever."""
        while True:
            await self._wanted.wait()
            waiting, self._waiting = self._waiting, []
            refusal: RequestRefused | None = None
            try:
                await self._read()
            except DLedgerError as error:
                refusal = RequestRefused.not_available(f"not confirmed ({error}): ask again")
            self._tell(waiting, refusal)
            del waiting  # and the requests in them, which are answered

    def _tell(self, waiting: Sequence[Then], refusal: RequestRefused | None) -> None:
        self._work.each("answers that wait for the group", waiting, lambda then: then(refusal))

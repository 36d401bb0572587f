"""Answers that wait until the group confirms that this member has all acknowledged entries.

A deposed leader that does not know it yet would answer from an old state. So a leader asks the
group first (`Node.read`): one question for all answers that gathered during the previous one.
"""

from collections.abc import Awaitable, Callable, Sequence

from broker.errors import RequestRefused
from broker.log.submissions import Then
from broker.serving.work_in_steps import WorkInSteps
from dledger import DLedgerError
from dledger.wake_up import WakeUp


class ConfirmedReads:
    """The waiting answers.

    Args:
        read: `Node.read`: returns when the state has all entries acknowledged before the call.
        limit: how many answers may wait.
        work: runs the answers in steps.
    """

    def __init__(self, read: Callable[[], Awaitable[int]], limit: int, work: WorkInSteps) -> None:
        self._read = read
        self._limit = limit
        self._work = work
        self._waiting: list[Then] = []
        self._wanted = WakeUp()

    def add(self, then: Then) -> None:
        """Call `then` later, once the state may be read, or with the reason why it may not.

        Raises RequestRefused (2): too many wait.
        """
        if len(self._waiting) >= self._limit:
            raise RequestRefused.busy(f"[OVERLOAD]{self._limit} reads wait: ask again later")
        self._waiting.append(then)
        self._wanted.set()

    async def run(self) -> None:
        while True:
            await self._wanted.wait()
            waiting, self._waiting = self._waiting, []
            refusal: RequestRefused | None = None
            try:
                await self._read()
            except DLedgerError as error:
                refusal = RequestRefused.not_available(f"not confirmed ({error}): ask again")
            self._tell(waiting, refusal)
            del waiting  # frees the answered requests

    def _tell(self, waiting: Sequence[Then], refusal: RequestRefused | None) -> None:
        self._work.each("answers that wait for the group", waiting, lambda then: then(refusal))

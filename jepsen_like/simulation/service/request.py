"""One request of a simulated client, and its outcome."""

from __future__ import annotations

from enum import StrEnum

from dledger.errors import Discarded, DLedgerError, OutcomeUnknown, Rejected
from dledger.waits.pending_appends import Appended, Outcome
from jepsen_like.chaos.service import Call


class Unanswered(OutcomeUnknown):
    """A client has no answer: the member it asked has ended, or time is over."""

    problem: str


class Told(StrEnum):
    """What a client knows about its request."""

    NOTHING = "no answer yet"
    DONE = "done"
    NEVER = "certainly not done"
    UNKNOWN = "done or not"


class Request:
    """A request.

    Attributes:
        number: counts the requests of a run.
        what: "append" or "read".
        member: the member that was asked; empty if there was none to ask.
        body: of an append.
        call: the same in the words of a service for `jepsen-like run`, if it was made for one.
        client: the number of the client, then.
        began_s, ended_s: in virtual seconds; `ended_s` is None until there is an answer.
        told: what the client knows.
        appended: the answer to an append that is done: index, term and the machine's result.
        answer: the answer to a read.
        error: why it is not done, or may not be.
    """

    def __init__(
        self,
        number: int,
        what: str,
        member: str,
        body: bytes,
        began_s: float,
        call: Call | None = None,
        client: int = 0,
    ) -> None:
        self.number = number
        self.what = what
        self.member = member
        self.body = body
        self.call = call
        self.client = client
        self.began_s = began_s
        self.ended_s: float | None = None
        self.told = Told.NOTHING
        self.appended: Appended | None = None
        self.answer: object = None
        self.error: DLedgerError | None = None

    @property
    def is_open(self) -> bool:
        """Whether there is no answer yet."""
        return self.told is Told.NOTHING

    @property
    def result(self) -> object:
        """The machine's result of an append that is done. Raises the error of one that is not."""
        if self.appended is None:
            raise self.error or Unanswered("there is no answer yet")
        return self.appended.result

    # --- for the simulation -----------------------------------------------------------------

    def append_ended(self, outcome: Outcome, now_s: float) -> None:
        """Take the answer to an append."""
        if isinstance(outcome, list):
            self.appended = outcome[0]
            self._end(Told.DONE, now_s)
        else:
            self.failed(outcome, now_s)

    def read_ended(self, answer: object, now_s: float) -> None:
        """Take the answer to a read."""
        self.answer = answer
        self._end(Told.DONE, now_s)

    def failed(self, error: DLedgerError, now_s: float) -> None:
        """Take an error for an answer."""
        self.error = error
        certain = isinstance(error, Rejected | Discarded) or self.what == "read"
        self._end(Told.NEVER if certain else Told.UNKNOWN, now_s)

    def _end(self, told: Told, now_s: float) -> None:
        if self.is_open:
            self.told, self.ended_s = told, now_s

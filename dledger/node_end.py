"""How a node ended: its error, and the errors of the calls that this interrupts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVarTuple

from dledger.errors import DLedgerError, NodeClosed, NodeClosing, NodeFailed, ResourceRefused
from dledger.system_refusals import refusal_of

Arguments = TypeVarTuple("Arguments")


@dataclass(frozen=True, slots=True)
class NodeEnd:
    """The end of a node.

    Attributes:
        cause: why the node could not go on; None if its block ended.
    """

    cause: BaseException | None = None

    def closing(self) -> NodeClosing:
        """Return the error of a call that has certainly done nothing."""
        error = NodeClosing()
        error.__cause__ = self.cause
        return error

    def closed(self, index: int) -> NodeClosed:
        """Return the error of a call whose entry at `index` may still be committed."""
        error = NodeClosed(index)
        error.__cause__ = self.cause
        return error


def fenced(
    call: Callable[[*Arguments], None], fail: Callable[[Exception], None]
) -> Callable[[*Arguments], None]:
    def call_fenced(*arguments: *Arguments) -> None:
        try:
            call(*arguments)
        except Exception as error:
            fail(error)

    return call_fenced


def node_ending(error: Exception) -> DLedgerError:
    """Return the one DLedgerError that ends a node, from what its tasks raised."""
    raised = list(_alone(error))
    ending = next((each for each in raised if isinstance(each, DLedgerError)), None)
    if ending is None:
        refused = next((each for each in raised if refusal_of(each) is not None), None)
        cause = refused or raised[0]
        ending = NodeFailed(cause) if refused is None else ResourceRefused(cause)
        ending.__cause__ = cause
    for other in raised:
        if other is not ending and other is not ending.__cause__:
            ending.add_note(f"another task of the node raised {other!r}")
    return ending


def _alone(error: Exception) -> Iterator[Exception]:
    if isinstance(error, ExceptionGroup):
        for each in error.exceptions:
            yield from _alone(each)
    else:
        yield error

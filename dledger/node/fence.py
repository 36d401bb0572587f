"""Contains an error that one group's code raises in a task that all groups of a process share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVarTuple

from dledger.errors import DLedgerError, NodeFailed, ResourceRefused
from dledger.system_refusals import refusal_of

Arguments = TypeVarTuple("Arguments")


def fenced(
    call: Callable[[*Arguments], None], fail: Callable[[Exception], None]
) -> Callable[[*Arguments], None]:
    """Wrap `call` so that its exceptions go to `fail`, which ends the node of its group."""

    def call_fenced(*arguments: *Arguments) -> None:
        try:
            call(*arguments)
        except Exception as error:
            fail(error)

    return call_fenced


def node_ending(error: Exception) -> DLedgerError:
    """The one DLedgerError that ends a node, made of what its tasks raised."""
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

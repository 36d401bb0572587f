"""Checks a state machine when its node opens, and the results of its `apply`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence

from dledger.entry import Entry
from dledger.errors import (
    Fatal,
    MachineFailed,
    MachineTooOld,
    MachineUnusable,
    ResourceRefused,
    RestoreFailed,
)
from dledger.state_machine import SnapshottingMachine, StateMachine
from dledger.system_refusals import refusal_of

Apply = Callable[[Sequence[Entry]], Sequence[object]]


# The text of our error quotes this much of the machine's. `__cause__` has the whole error.
_MAX_ERROR_CHARACTERS = 300


def raised(error: BaseException) -> str:
    text = repr(error)
    if len(text) > _MAX_ERROR_CHARACTERS:
        text = f"{text[:_MAX_ERROR_CHARACTERS]}..."
    return f"raised {text}"


def snapshot_chunks(machine: SnapshottingMachine) -> Iterator[bytes]:
    """Return the chunks of a machine's state. Raises TypeError if they are not bytes."""
    chunks = machine.snapshot()
    if isinstance(chunks, bytes | bytearray | memoryview | str):
        kind = type(chunks).__name__
        raise TypeError(f"snapshot() returned {kind}: return a list of chunks, such as [state]")
    return map(_checked_chunk, chunks)


def _checked_chunk(chunk: bytes) -> bytes:
    if not isinstance(chunk, bytes | bytearray | memoryview):
        raise TypeError(f"snapshot() gave a chunk of {type(chunk).__name__}: chunks are bytes")
    return chunk


def restore(machine: SnapshottingMachine, chunks: Callable[[], Iterator[bytes]], path: str) -> None:
    """Restore a machine from the snapshot at `path`. Raises RestoreFailed, ResourceRefused."""
    try:
        machine.restore(chunks())
    except Exception as error:
        if refusal_of(error) is not None:  # the disk of the snapshot, perhaps
            raise ResourceRefused(error) from error
        raise RestoreFailed(path, raised(error)) from error


def check_machine(machine: StateMachine) -> None:
    """Raise MachineUnusable if the object is recognizably not a state machine."""
    name = type(machine).__name__
    if isinstance(machine, type):
        raise MachineUnusable(machine.__name__, f"is a class: give an object, {machine.__name__}()")
    apply = getattr(machine, "apply", None)
    if not callable(apply):
        raise MachineUnusable(name, "has no method apply(entries)")
    if inspect.iscoroutinefunction(apply) or inspect.isasyncgenfunction(apply):
        raise MachineUnusable(name, "has an async apply(): make it a plain method")
    if inspect.isgeneratorfunction(apply):
        raise MachineUnusable(name, "has an apply() that yields: return a list of results")
    try:
        inspect.signature(apply).bind(())
    except TypeError:
        raise MachineUnusable(name, "has an apply() that does not take the entries alone") from None
    except ValueError:
        return  # written in C, without a signature


def applied(apply: Apply, entries: Sequence[Entry], first: int, last: int) -> Sequence[object]:
    """Apply the entries `first`..`last`; return one result for each.

    Raises MachineTooOld if the machine does; MachineFailed, ResourceRefused, and every Fatal error
    that the machine raises itself.
    """
    try:
        results = apply(entries)
    except (Fatal, MachineTooOld):
        raise  # deliberate: the disk under its files failed, say, or a machine inside of it
    except Exception as error:
        if refusal_of(error) is not None:
            raise ResourceRefused(error) from error
        raise MachineFailed(first, last, raised(error)) from error
    if type(results) is not list and not isinstance(results, Sequence):
        kind = "None" if results is None else type(results).__name__
        raise MachineFailed(first, last, f"returned {kind}, not a list of results, from apply()")
    if len(results) != len(entries):
        count = f"{len(results)} results for {len(entries)} entries"
        raise MachineFailed(first, last, f"returned {count} from apply()")
    return results

"""How a command ends at Ctrl-C and SIGTERM: what runs is interrupted, then all is cleaned up.

Python calls the handlers of signals in the main thread, once that is back from the code of others:
a query of DuckDB takes minutes, and a thread of Spark's may be the one that asks it. So the number
of a signal also goes to a thread, which interrupts what has said how it can be.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from typing import Final, NoReturn

from dledger_spark.interruptions import interrupt_all

# An interruption that comes just before a query begins does nothing, so they are repeated.
REPEAT_S: Final = 0.1
_raised: Final[list[KeyboardInterrupt]] = []  # by signals of this process


class Terminated(KeyboardInterrupt):
    """SIGTERM has come. It is handled like Ctrl-C everywhere, up to the exit code."""


def end_at_signals() -> None:
    """Raise KeyboardInterrupt at Ctrl-C and Terminated at SIGTERM. A second signal ends at once.

    Whatever a command writes is whole or not there after any end. A signal that the parent has set
    to be ignored stays so.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _raise)
    heard, told = os.pipe()
    os.set_blocking(told, False)
    signal.set_wakeup_fd(told, warn_on_full_buffer=False)
    threading.Thread(target=_interrupt_at_signals, args=(heard,), daemon=True).start()


def signal_behind(error: BaseException) -> KeyboardInterrupt | None:
    """What a signal has raised, if that is why an error was raised; None otherwise.

    A library that calls Python may turn it into an error of its own, and what is interrupted fails.
    """
    if isinstance(error, KeyboardInterrupt):
        return error
    return _raised[-1] if _raised else None


def end_now(ended: BaseException) -> NoReturn:
    """End the process without waiting for its threads. Its locks are free then, not sooner."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_code(ended))


def exit_code(ended: BaseException) -> int:
    """The exit code of a command: as a shell reports a signal, or 1 of another failure."""
    if not isinstance(ended, KeyboardInterrupt):
        return 1
    return 128 + (signal.SIGTERM if isinstance(ended, Terminated) else signal.SIGINT)


def _raise(number: int, _frame: object) -> NoReturn:
    signal.signal(number, signal.SIG_DFL)
    ended = Terminated() if number == signal.SIGTERM else KeyboardInterrupt()
    _raised.append(ended)
    raise ended


def _interrupt_at_signals(heard: int) -> None:
    ends = {signal.SIGINT, signal.SIGTERM}
    while numbers := os.read(heard, 64):
        if ends.intersection(numbers):
            while interrupt_all():
                time.sleep(REPEAT_S)

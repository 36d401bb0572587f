"""How a command ends at Ctrl-C and SIGTERM: running work is interrupted, then cleaned up.

Python calls signal handlers in the main thread, and only once that runs Python code again: a query
of DuckDB takes minutes, and a thread of Spark's may be the one that runs it. So the number of a
signal also goes to a thread, which makes the calls that were registered by `interrupted_by`.
"""

import os
import signal
import sys
import threading
import time
from typing import Final, NoReturn

from dledger_spark.interruptions import interrupt_all

# An interruption just before a query begins does nothing, so interruptions are repeated.
REPEAT_S: Final = 0.1
_raised: Final[list[KeyboardInterrupt]] = []  # by signals of this process


class Terminated(KeyboardInterrupt):
    """SIGTERM has come. It is handled like Ctrl-C, except for the exit code."""


def end_at_signals() -> None:
    """Raise KeyboardInterrupt at Ctrl-C and Terminated at SIGTERM. A second signal ends at once.

    After any end a file that a command writes is whole, or not there. A signal that the parent
    process ignores stays ignored.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _raise)
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    threading.Thread(target=_interrupt_at_signals, args=(reading,), daemon=True).start()


def signal_behind(error: BaseException) -> KeyboardInterrupt | None:
    """Return the error of the signal that caused an error; None if no signal did.

    A library that calls Python may replace the error by one of its own, and interrupted work fails.
    """
    if isinstance(error, KeyboardInterrupt):
        return error
    return _raised[-1] if _raised else None


def end_now(ended: BaseException) -> NoReturn:
    """End the process without waiting for its threads; it holds its locks until then."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_code(ended))


def exit_code(ended: BaseException) -> int:
    """Return the exit code of a command: as a shell reports a signal, or 1 for another failure."""
    if not isinstance(ended, KeyboardInterrupt):
        return 1
    return 128 + (signal.SIGTERM if isinstance(ended, Terminated) else signal.SIGINT)


def _raise(number: int, _frame: object) -> NoReturn:
    signal.signal(number, signal.SIG_DFL)
    ended = Terminated() if number == signal.SIGTERM else KeyboardInterrupt()
    _raised.append(ended)
    raise ended


def _interrupt_at_signals(reading: int) -> None:
    ends = {signal.SIGINT, signal.SIGTERM}
    while numbers := os.read(reading, 64):
        if ends.intersection(numbers):
            while interrupt_all():
                time.sleep(REPEAT_S)

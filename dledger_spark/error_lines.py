"""What went wrong in one line, from the errors of others. Pure."""

from __future__ import annotations

import errno
import os
import re
from typing import Final

_OWN: Final = re.compile(r"^dledger_spark\.errors\.\w+: (.*)", re.MULTILINE)
_OF_SYSTEM: Final = re.compile(r"^\w*Error: (\[Errno (\d+)\] .*)", re.MULTILINE)
_TRACEBACK: Final = "Traceback (most recent call last)"
_REMEDIES: Final = {
    errno.EACCES: "give this user access to it, or name another",
    errno.EPERM: "give this user access to it, or name another",
    errno.ENOSPC: "make room, then start the same command again",
    errno.EDQUOT: "make room, then start the same command again",
    errno.EFBIG: "make room, then start the same command again",
    errno.EROFS: "name a folder that can be written",
    errno.ENAMETOOLONG: "name a shorter path",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
}
_OTHERWISE: Final = "see that it is there and can be used, then try again"


def one_line(text: str) -> str:
    """The text without what would end its line or move the cursor."""
    return "".join(
        sign if sign.isprintable() else sign.encode("unicode_escape").decode("ascii")
        for sign in text
    )


def line_of_system(error: OSError) -> str:
    """What the operating system has refused, and what to do."""
    return one_line(f"{error}: {_REMEDIES.get(error.errno or 0, _OTHERWISE)}")


def line_of_spark(text: str) -> str | None:
    """What an exception of Spark says, by its text with the traces of Python and Java.

    Returns:
        A line; None if a task failed by an unexpected error, whose trace is needed.
    """
    if own := _OWN.search(text):
        return own[1]
    if os.strerror(errno.ENOSPC) in text:
        return "the disk with Spark's temporary files is full: free some, or set TMPDIR"
    if of_system := _OF_SYSTEM.search(text):
        return f"{of_system[1]}: {_REMEDIES.get(int(of_system[2]), _OTHERWISE)}"
    if _TRACEBACK in text:
        return None
    return one_line(text.strip().partition("\n")[0])

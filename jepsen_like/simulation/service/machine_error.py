"""An error of a user's code in one line."""

from __future__ import annotations

import traceback

# The folder of the library's own code: a user's error is told by the last line outside of it.
_OURS = __file__.rsplit("/", 4)[0]


def raised_in(error: BaseException) -> str:
    """The type and text of an error, and the user's line that it comes from."""
    frames = traceback.extract_tb(error.__traceback__)
    packages = tuple(f"{_OURS}/{name}/" for name in ("dledger", "jepsen_like"))
    theirs = [frame for frame in frames if not frame.filename.startswith(packages)]
    shown = theirs or list(frames)
    said = "".join(traceback.format_exception_only(error)).strip().replace("\n", " ")
    if not shown:
        return said
    frame = shown[-1]
    line = f" `{frame.line}`" if frame.line else ""
    return f"{said} ({frame.filename.rpartition('/')[2]}:{frame.lineno} in {frame.name}{line})"

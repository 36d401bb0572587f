"""An error of a user's code in one line."""

from __future__ import annotations

import sysconfig
import traceback

# The folder of the library's own code: a user's error is told by the last line outside of it.
_OURS = __file__.rsplit("/", 4)[0]
_PACKAGES = tuple(f"{_OURS}/{name}/" for name in ("dledger", "jepsen_like"))
_LIBRARIES = ("stdlib", "platstdlib", "purelib", "platlib")


_INSTALLED = tuple(
    f"{folder}/" for name, folder in sysconfig.get_paths().items() if name in _LIBRARIES
)


class ServiceRaised(Exception):
    """A function of a user's service raised, other than in its state machine's `apply`.

    Attributes:
        seed: of the run.
        problem: the error, and the user's line.
    """

    def __init__(self, seed: int, problem: str) -> None:
        self.seed = seed
        self.problem = problem
        super().__init__(seed, problem)

    def __str__(self) -> str:
        return f"seed {self.seed}: the code of the service raised {self.problem}"


def is_a_users(error: BaseException) -> bool:
    """Whether an error passed a line that is neither of this project nor of a library."""
    frames = traceback.extract_tb(error.__traceback__)
    return any(not frame.filename.startswith((*_PACKAGES, *_INSTALLED, "<")) for frame in frames)


def raised_in(error: BaseException) -> str:
    """The type and text of an error, and the user's line that it comes from."""
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [frame for frame in frames if not frame.filename.startswith(_PACKAGES)]
    shown = theirs or list(frames)
    said = "".join(traceback.format_exception_only(error)).strip().replace("\n", " ")
    if not shown:
        return said
    frame = shown[-1]
    line = f" `{frame.line}`" if frame.line else ""
    return f"{said} ({frame.filename.rpartition('/')[2]}:{frame.lineno} in {frame.name}{line})"

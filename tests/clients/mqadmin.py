"""The commands of RocketMQ's operators, run by its own `mqadmin`, with their words checked.

Its exit code is 0 whatever happens, so only the words tell.
"""

import re
import time
from collections.abc import Iterable
from typing import NamedTuple, NoReturn

from tests.clients.client_script import Failed
from tests.clients.java_process import JavaProcess

COMMAND_S = 60
SHOWN_CHARACTERS = 600
UNTIL_COMMITTED_S = 60


class Expected(NamedTuple):
    """A command, and a pattern that its words must match.

    Both may name {topic} and {group}; the command also {address} of a leader, and {last} of another
    one if there are several.
    """

    words: str
    pattern: str


class Mqadmin:
    """One version of `mqadmin` at one cluster, with a topic and a group to work on.

    Args:
        process: runs the commands.
        topic, group: what is put for the names in commands and patterns.
    """

    def __init__(self, process: JavaProcess, topic: str, group: str) -> None:
        self._process = process
        self._names = {"topic": topic, "group": group}
        addresses = re.findall(r"\s0\s+(127\.0\.0\.1:\d+)", self.told("clusterList"))
        if not addresses:
            raise Failed("clusterList: no broker leads")
        self._names |= {"address": addresses[0], "last": addresses[-1]}

    def told(self, words: str) -> str:
        """What a command prints."""
        command = words.format(**self._names)
        return self._process.ask(command.split(), COMMAND_S)

    def check(self, expected: Expected) -> re.Match[str]:
        """Run a command; its words, as they match.

        Raises:
            Failed: they do not match, or tell of an exception that the pattern does not.
        """
        told = self.told(expected.words)
        return self._match(expected, told) or self._fail(expected, told)

    def check_all(self, commands: Iterable[Expected]) -> int:
        """Run commands; how many."""
        return len([self.check(expected) for expected in commands])

    def until(self, expected: Expected) -> re.Match[str]:
        """Run a command again and again until its words match."""
        deadline = time.monotonic() + UNTIL_COMMITTED_S
        while True:
            told = self.told(expected.words)
            found = self._match(expected, told)
            if found is not None:
                return found
            if time.monotonic() > deadline:
                self._fail(expected, told)
            time.sleep(0.5)

    def _match(self, expected: Expected, told: str) -> re.Match[str] | None:
        pattern = expected.pattern
        for name, value in self._names.items():
            pattern = pattern.replace(f"{{{name}}}", re.escape(value))
        found = re.search(pattern, told)
        return found if "Exception" not in told or "Exception" in pattern else None

    def _fail(self, expected: Expected, told: str) -> NoReturn:
        lines = [line for line in told.splitlines() if line and not line.startswith("\tat ")]
        said = " / ".join(lines)[:SHOWN_CHARACTERS]
        raise Failed(f"{expected.words}: no {expected.pattern!r} in its words: {said}")

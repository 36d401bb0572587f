"""Java DLedger's own file store in a process of its own; see java/StoreSession.java."""

import base64
import subprocess
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from tests.interop.toolchain import Toolchain

# DLedger unmaps files through classes that Java 16 and later hide.
OPENED_CLASSES = ("java.base/java.nio", "java.base/sun.nio.ch", "java.base/java.lang")
NODE = "n0"


class Failed(Exception):
    """A scenario did not go as it should; the text says how, in one line."""


class Row(NamedTuple):
    """One entry, as whoever read it saw it. Sums are unsigned."""

    index: int  # type: ignore[assignment]  # hides tuple.index
    term: int
    pos: int
    magic: int
    size: int
    channel: int
    chain_crc: int
    body_crc: int
    body_size: int
    sha256: str


class Opened(NamedTuple):
    """What Java's recovery found. `end_term` is 0 in an empty log."""

    before: int
    end: int
    end_term: int
    write_pos: int


class JavaStore:
    """A session; opens one folder after the other."""

    def __init__(self, toolchain: Toolchain, log: Path) -> None:
        self._log = log.open("w")
        flags = [word for name in OPENED_CLASSES for word in ("--add-opens", f"{name}=ALL-UNNAMED")]
        self._process = subprocess.Popen(
            [toolchain.java, "-Xmx256m", *flags, "-cp", toolchain.class_path, "StoreSession"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )

    def __enter__(self) -> "JavaStore":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the process."""
        try:
            self._process.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
        self._log.close()

    def open(self, base: Path, data_bytes: int, index_bytes: int, node: str = NODE) -> Opened:
        """Run Java's recovery on `base`/dledger-`node`."""
        _, answer = self._ask(f"open {base} {node} {data_bytes} {index_bytes}")
        return Opened(*map(int, answer.split()))

    def lead(self, term: int) -> None:
        """Let the store take appends of this term."""
        self._ask(f"lead {term}")

    def append(self, magic: int, body: bytes) -> tuple[int, int]:
        """Append one entry as a leader does; its index and position."""
        _, answer = self._ask(f"append {magic} {base64.b64encode(body).decode()}")
        index, pos = answer.split()
        return int(index), int(pos)

    def truncate_after(self, index: int) -> None:
        """Drop every entry behind `index`."""
        self._ask(f"truncate {index + 1}")

    def rows(self) -> list[Row]:
        """Every entry, as Java's own `get` gives it."""
        lines, _ = self._ask("dump")
        found = []
        for line in lines:
            *numbers, digest = line.split()
            index, term, pos, magic, size, channel, chain, body_sum, body_size = map(int, numbers)
            sums = (chain, body_sum)
            found.append(Row(index, term, pos, magic, size, channel, *sums, body_size, digest))
        return found

    def serve(self, base: Path, data_bytes: int, index_bytes: int, port: int, count: int) -> int:
        """Run a whole server on the folder, a group of one, until it has committed `count` entries
        "served 0", "served 1", ...; its term.
        """
        _, term = self._ask(f"serve {base} {NODE} {data_bytes} {index_bytes} {port} {count}")
        return int(term)

    def close(self) -> None:
        """Flush and shut the store down."""
        self._ask("close")

    def _ask(self, command: str) -> tuple[list[str], str]:
        """The lines of an answer, and what its last line says behind "ok"."""
        if self._process.stdin is None or self._process.stdout is None:
            raise Failed("the session has no pipes")
        try:
            self._process.stdin.write(command + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise Failed(f"Java ended before: {command[:80]}") from None
        lines: list[str] = []
        for line in self._process.stdout:
            words = line.rstrip("\n")
            if words.startswith("ok "):
                return lines, words[3:]
            if words.startswith("failed "):
                raise Failed(f"{command[:80]}: {words[7:]}")
            lines.append(words)
        raise Failed(f"Java gave up (exit code {self._process.wait()}) at: {command[:80]}")

"""Runs logs again in a process with other hashes and clocks: machines must not depend on them.

The order of a set of strings, for example, differs between processes of Python. The members of a
simulated group are all in one process, so they would agree on it.
"""

from __future__ import annotations

import os
import pickle
import select
import subprocess
import sys
from contextlib import suppress
from typing import Any

import msgpack

from dledger.declared_error import DeclaredError
from jepsen_like.fingerprint import shortened, told
from jepsen_like.simulation.service.service import Service
from jepsen_like.simulation.service.service_book import NEVER_RAISES, ServiceBook
from jepsen_like.simulation.witness import InvariantViolated

# The program of the other process.
_PROGRAM = "from jepsen_like.simulation.service.replaying import main; main()"
# Requests and answers begin with their length, in so many bytes.
LENGTH_BYTES = 8
EQUAL_ELSEWHERE = "equal logs give equal states in every process"
# How long a replay may take, in seconds.
ANSWER_TIMEOUT_S = 120.0
# Common characters that are shown before the first difference, at most.
KEPT_IN_COMMON = 40
# Hash seeds for the other process: it gets one that this process does not have.
HASH_SEEDS = ("4242", "1717")


class NotElsewhere(DeclaredError):
    """A service cannot be loaded in another process; its text says why."""

    problem: str


class OtherProcess:
    """The other process of one service; close it.

    Raises NotElsewhere.
    """

    def __init__(self, service: Service) -> None:
        for made in (service.machine, service.state):
            if getattr(made, "__module__", "") == "__main__":
                raise NotElsewhere("it is of the main program, which no other process can import")
        try:
            pickled = pickle.dumps((service.machine, service.state))
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise NotElsewhere(f"no other process can import it: {error}") from error
        ours = os.environ.get("PYTHONHASHSEED")
        hash_seed = next(seed for seed in HASH_SEEDS if seed != ours)
        paths = [path or os.getcwd() for path in sys.path]
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(paths)},
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests, self._answers = self._process.stdin, self._process.stdout
        self._service = service
        try:
            if (problem := self._ask(pickled).get("error")) is not None:
                raise NotElsewhere(str(problem))
        except NotElsewhere:
            self.close()
            raise

    def close(self) -> None:
        with suppress(BrokenPipeError):  # of a request that it did not read
            self._requests.close()
        self._answers.close()
        self._process.wait()

    def check(self, book: ServiceBook) -> None:
        """Run the log of a book again. Raises InvariantViolated if anything differs."""
        rows = [
            (tuple(entry), *sums) for entry, sums in zip(book.entries, book.digests(), strict=True)
        ]
        try:
            answer = self._ask(msgpack.packb(rows))
        except NotElsewhere as error:
            raise InvariantViolated(NEVER_RAISES, f"in another process: {error}") from error
        if "error" in answer:
            raise InvariantViolated(NEVER_RAISES, f"in another process: {answer['error']}")
        if not answer:
            return
        at = int(answer["at"])
        entry = book.entries[at]
        if answer["what"] == "result":
            here = told(book.results[at])
        else:
            here = told(self._service.state_of(book.replayed(at + 1)))
        one, other = _beside(here, str(answer["told"]))
        read = f"; apply() reads {', '.join(answer['clocks'])}" if answer["clocks"] else ""
        raise InvariantViolated(
            EQUAL_ELSEWHERE,
            f"the {answer['what']} of entry {entry.index} ({shortened(repr(entry.body))}) is "
            f"{one}; in a process with other hashes and clocks it is {other}{read}",
        )

    def _ask(self, request: bytes) -> dict[str, Any]:
        length = b""
        with suppress(BrokenPipeError):
            self._requests.write(len(request).to_bytes(LENGTH_BYTES, "big") + request)
            self._requests.flush()
            ready, _, _ = select.select([self._answers], [], [], ANSWER_TIMEOUT_S)
            length = self._answers.read(LENGTH_BYTES) if ready else b""
        if len(length) < LENGTH_BYTES:
            self._process.kill()
            raise NotElsewhere("the other process has ended, or does not answer")
        answer: dict[str, Any] = msgpack.unpackb(self._answers.read(int.from_bytes(length, "big")))
        return answer


def _beside(one: str, other: str) -> tuple[str, str]:
    """Return two texts that differ, without most of their common beginning."""
    pairs = zip(one, other, strict=False)
    common = next((at for at, (left, right) in enumerate(pairs) if left != right), 0)
    skipped = max(0, common - KEPT_IN_COMMON)
    if skipped:
        one, other = f"... {one[skipped:]}", f"... {other[skipped:]}"
    return shortened(one), shortened(other)

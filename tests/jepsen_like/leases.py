"""A file that the holder of the newest lease may write, with clients that use what they got."""

import json
from collections.abc import Generator, Sequence

from dledger import Entry
from jepsen_like import Answer, Call
from jepsen_like.chaos.service import Caller


class LeasedFile:
    """Each lease has a larger token; the holder of an older one is refused."""

    def __init__(self) -> None:
        self.token = 0
        self.written: list[int] = []

    def apply(self, entries: Sequence[Entry]) -> list[object]:
        return [self.change(*json.loads(entry.body)) for entry in entries]

    def change(self, function: str, key: str, value: int) -> object:
        if function == "take":
            self.token += 1
            return self.token
        if self.is_expired(value):
            return "expired"
        self.written.append(value)
        return "written"

    def is_expired(self, token: int) -> bool:
        return token < self.token


class UnfencedFile(LeasedFile):
    """Takes what any holder writes."""

    def is_expired(self, token: int) -> bool:
        return False


class Editors:
    """Clients that take a lease, and write with its token until another one has it."""

    machine: type[LeasedFile] = LeasedFile

    def client(self, caller: Caller) -> Generator[Call, Answer, None]:
        lease = yield Call("take", "file")
        while lease.ok:
            written = yield Call("write", "file", lease.value)
            if written.value == "expired":
                return
            if caller.random.random() < 0.1:
                lease = yield Call("take", "file")

    def invariant(self, machine: LeasedFile) -> str | None:
        for before, after in zip(machine.written, machine.written[1:], strict=False):
            if after < before:
                return f"lease {after} wrote after lease {before}"
        return None


class EditorsOfAnUnfencedFile(Editors):
    machine = UnfencedFile

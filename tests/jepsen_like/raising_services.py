"""Services that are right but for one method, which raises after a while."""

import json
from collections.abc import Generator, Hashable, Iterator, Sequence
from random import Random

from dledger import Entry
from jepsen_like import Answer, Call, Service, World
from jepsen_like.chaos.service import Caller
from jepsen_like.history.operation import Operation

# What clients do is drawn for so many calls before it raises.
CALLS_BEFORE = 12


class Broken(Exception):
    """What the methods raise."""


class Words:
    """Holds the last word, and how many there were."""

    def __init__(self) -> None:
        self.word, self.count = "", 0

    def apply(self, entries: Sequence[Entry]) -> list[object]:
        for entry in entries:
            self.word, self.count = entry.body.hex(), self.count + 1
        return [None] * len(entries)

    def snapshot(self) -> list[bytes]:
        return [json.dumps([self.word, self.count]).encode()]

    def restore(self, chunks: Iterator[bytes]) -> None:
        self.word, self.count = json.loads(b"".join(chunks))


class WordsApply(Words):
    def apply(self, entries: Sequence[Entry]) -> list[object]:
        if self.count > 3:
            raise Broken("as planned")
        return super().apply(entries)


class WordsSnapshot(Words):
    def snapshot(self) -> list[bytes]:
        if self.count:
            raise Broken("as planned")
        return super().snapshot()


class WordsRestore(Words):
    def restore(self, chunks: Iterator[bytes]) -> None:
        super().restore(chunks)
        if self.count:
            raise Broken("as planned")


class WordsKept(Words):
    def log_kept_from(self) -> int:
        raise Broken("as planned")


class Model:
    """Allows all."""

    initial = 0

    def step(self, state: Hashable, operation: Operation) -> Hashable:
        return state


class ModelStep(Model):
    def step(self, state: Hashable, operation: Operation) -> Hashable:
        raise Broken("as planned")


def state(machine: Words) -> object:
    if machine.count > 3:
        raise Broken("as planned")
    return machine.word


def query(machine: Words) -> str:
    if machine.count > 3:
        raise Broken("as planned")
    return machine.word


def operations(random: Random) -> bytes:
    if random.random() < 1 / CALLS_BEFORE:
        raise Broken("as planned")
    return random.randbytes(4)


def invariant(world: World) -> None:
    if len(world.requests) > 3:
        raise Broken("as planned")


class Described:
    """As `jepsen-like run --service` takes it; nothing of it raises."""

    machine = Words

    def generate(self, caller: Caller) -> Call:
        if caller.random.random() < 0.4:
            return Call("look", is_read=True)
        return Call("say", None, caller.number, b"%d" % caller.number)

    def query(self, machine: Words, call: Call) -> object:
        return machine.count


class DescribedGenerate(Described):
    def generate(self, caller: Caller) -> Call:
        if caller.number > CALLS_BEFORE:
            raise Broken("as planned")
        return super().generate(caller)


class DescribedClient(Described):
    def client(self, caller: Caller) -> Generator[Call, Answer, None]:
        yield Call("look", is_read=True)
        raise Broken("as planned")


class DescribedQuery(Described):
    def query(self, machine: Words, call: Call) -> object:
        raise Broken("as planned")


class DescribedAnswered(Described):
    model = Model

    def answered(self, call: Call, result: object) -> object:
        raise Broken("as planned")


class DescribedState(Described):
    def state(self, machine: Words) -> object:
        raise Broken("as planned")


class DescribedInvariant(Described):
    def invariant(self, machine: Words) -> str | None:
        raise Broken("as planned")


class DescribedFinal(Described):
    def final(self) -> list[Call]:
        raise Broken("as planned")


class OfMachine:
    """Services whose methods are named as the one that raises."""

    apply = Service(WordsApply)
    snapshot = Service(WordsSnapshot)
    restore = Service(WordsRestore)
    log_kept_from = Service(WordsKept)


class OfService:
    """The same of the fields of a Service."""

    state = Service(Words, state=state)
    query = Service(Words, query=query)
    operations = Service(Words, operations=operations)
    invariant = Service(Words, invariant=invariant)
    model = Service(Words, query=lambda machine: machine.word, model=ModelStep())


class OfDescribed:
    """The same of a class as `jepsen-like run --service` takes it."""

    generate = DescribedGenerate
    client = DescribedClient
    query = DescribedQuery
    answered = DescribedAnswered
    state = DescribedState
    invariant = DescribedInvariant
    final = DescribedFinal

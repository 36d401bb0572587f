"""Measures how long `jepsen-like check` takes on histories of known size."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import click

from bench.options import json_option
from jepsen_like.checkers.catalogue import CATALOGUE
from jepsen_like.checkers.checker import Bounds, Request
from jepsen_like.history.history import History
from jepsen_like.history.operation import Event, EventType
from jepsen_like.history.pairing import Pairing
from jepsen_like.history.value import Value

TIME_LIMIT_S = 60.0
# The share of outcomes that clients lose, about as with a partition in ten.
LOST = 0.02


class Load(NamedTuple):
    """A history of a correct store with clients that call at random."""

    name: str
    model: str
    clients: int
    operations: int
    keys: int
    wrong: bool = False


LOADS = (
    Load("register, one key", "cas-register", 5, 1_000, 1),
    Load("register, one key, a wrong read", "cas-register", 5, 1_000, 1, wrong=True),
    Load("register, many clients", "cas-register", 50, 10_000, 200),
    Load("register, many clients, a wrong read", "cas-register", 50, 10_000, 200, wrong=True),
    Load("register, few keys", "cas-register", 50, 10_000, 10),
    Load("register, long", "cas-register", 20, 100_000, 1_000),
    Load("strings", "kv-append", 50, 2_000, 10),
    Load("queue", "queue", 50, 200_000, 16),
    Load("transactions on lists", "list-append", 20, 10_000, 10),
)


class Store:
    """A correct store. `happen` carries out a call at once."""

    def __init__(self, load: Load, chance: random.Random) -> None:
        self._load = load
        self._chance = chance
        self._registers: dict[int, int] = {}
        self._strings: dict[int, str] = {}
        self._queues: dict[int, list[int]] = {}
        self._lists: dict[int, list[int]] = {}
        self._number = 0

    def call(self) -> tuple[str, Value, Value]:
        """Return a function, a key and an argument."""
        self._number += 1
        key, chance = self._chance.randrange(self._load.keys), self._chance
        match self._load.model:
            case "cas-register":
                function = chance.choice(["read", "write", "cas"])
                pair = (chance.randrange(5), chance.randrange(5))
                return function, key, {"read": None, "write": pair[0], "cas": pair}[function]
            case "kv-append":
                function = chance.choice(["get", "append"])
                return function, key, None if function == "get" else f"{self._number} "
            case "queue":
                function = chance.choice(["send", "receive"])
                return function, key, self._number if function == "send" else None
            case _:
                # Each era has new lists, so that lists stay short.
                era = 1_000 * (self._number // 500)
                steps = [self._step(era + chance.randrange(self._load.keys)) for _ in range(3)]
                return "txn", None, tuple(steps)

    def _step(self, key: int) -> Value:
        self._number += 1
        if self._chance.random() < 0.5:
            return ("append", key, self._number)
        return ("r", key, None)

    def happen(self, function: str, key: Value, value: Value) -> tuple[bool, Value]:
        """Return whether the call was done, and its result."""
        assert isinstance(key, int) or key is None
        match function:
            case "read":
                return True, self._registers.get(key or 0)
            case "write" if isinstance(value, int):
                self._registers[key or 0] = value
            case "cas" if isinstance(value, tuple):
                if self._registers.get(key or 0) != value[0]:
                    return False, value
                self._registers[key or 0] = value[1]
            case "get":
                return True, self._strings.get(key or 0, "")
            case "append" if isinstance(value, str):
                self._strings[key or 0] = self._strings.get(key or 0, "") + value
            case "send" if isinstance(value, int):
                self._queues.setdefault(key or 0, []).append(value)
            case "receive":
                there = self._queues.setdefault(key or 0, [])
                return True, there.pop(0) if there else None
            case "txn" if isinstance(value, tuple):
                return True, tuple([self._answer(step) for step in value])
        return True, value

    def _answer(self, step: Value) -> Value:
        assert isinstance(step, tuple)
        function, key, value = step
        there = self._lists.setdefault(key, [])
        if function == "append":
            there.append(value)
            return step
        return (function, key, tuple(there))


def made(load: Load, seed: int = 7) -> History:
    chance = random.Random(seed)
    store = Store(load, chance)
    pairing = Pairing()
    for line, event in enumerate(_events(load, store, chance), 1):
        process, type_, (function, key, value) = event
        pairing.add(Event(line, process, line * 1000, type_, function, key, value))
    history = History(pairing.operations)
    if load.wrong:
        reads = [one for one in history.operations if one.ok and one.function == "read"]
        reads[-len(reads) // 10].result = 99  # a value that no client wrote
    return history


def _events(
    load: Load, store: Store, chance: random.Random
) -> Iterator[tuple[int, EventType, tuple[str, Value, Value]]]:
    called: dict[int, tuple[str, Value, Value]] = {}
    answered: dict[int, tuple[EventType, tuple[str, Value, Value]]] = {}
    left = load.operations
    while left or called or answered:
        process = chance.randrange(load.clients)
        if process in answered:
            type_, told = answered.pop(process)
            yield process, type_, told
        elif process in called:
            function, key, value = called.pop(process)
            happened, result = store.happen(function, key, value)
            type_ = EventType.OK if happened else EventType.FAIL
            if chance.random() < LOST and function in ("write", "cas", "append"):
                type_, result = EventType.INFO, value
            answered[process] = type_, (function, key, result)
        elif left:
            left -= 1
            called[process] = store.call()
            yield process, EventType.INVOKE, called[process]


def measure(load: Load, clock: Callable[[], float] = time.perf_counter) -> dict[str, object]:
    history = made(load)
    begin_s = clock()
    request = Request(Bounds(lambda: clock() > begin_s + TIME_LIMIT_S))
    report = CATALOGUE[load.model].check(history, request)
    took_s = clock() - begin_s
    return {
        "history": load.name,
        "model": load.model,
        "clients": load.clients,
        "operations": load.operations,
        "keys": load.keys,
        "verdict": report.verdict.value,
        "seconds": round(took_s, 3),
    }


@click.command()
@json_option("row")
def checking(kept: Path | None) -> None:
    """Measure the checkers of histories, one after another, in one process."""
    rows: list[dict[str, object]] = []
    for load in LOADS:
        row = measure(load)
        rows.append(row)
        words = f"{load.clients} clients, {load.operations} operations, {load.keys} keys"
        click.echo(f"{row['seconds']:>8} s  {load.name}: {words}: {row['verdict']}")
    if kept is not None:
        kept.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")

"""State machines to simulate: one that is right, and others that are wrong in one way each."""

import json
import random
import time
from collections.abc import Hashable, Iterator, Sequence
from datetime import date

from dledger import Entry, WithSessions
from dledger.machines import Objects, ReplicatedCounter, ReplicatedDict, ReplicatedQueue
from dledger.machines.command import Command, encode_command
from jepsen_like import Call, Service, World
from jepsen_like.chaos.service import Caller, CallFailed
from jepsen_like.history.operation import Operation

# A search for a shorter schedule ends by itself after some seconds of processor time. A busy
# machine must not end it before.
LONGEST_SEARCH_S = 300.0


class Register:
    """The last value that was written; the result of a write is the value before."""

    snapshot_format = "register/1"

    def __init__(self) -> None:
        self.value = ""
        self.writes = 0

    def apply(self, entries: Sequence[Entry]) -> list[object]:
        results: list[object] = []
        for entry in entries:
            results.append(self.value)
            self.value = entry.body.decode()
            self.writes += 1
        return results

    def snapshot(self) -> list[bytes]:
        return [json.dumps([self.value, self.writes]).encode()]

    def restore(self, chunks: Iterator[bytes]) -> None:
        self.value, self.writes = json.loads(b"".join(chunks))


class RegisterModel:
    """What a register does, for the checker of clients' histories."""

    initial = ""

    def step(self, state: Hashable, operation: Operation) -> Hashable | None:
        if operation.function == "read":
            return state if not operation.ok or operation.result == state else None
        return operation.value if not operation.ok or operation.result == state else None

    def observes(self, operation: Operation) -> bool:
        return operation.function == "read"


def new_value(random: random.Random) -> bytes:
    return b"%06d" % random.randrange(1_000_000)


def value_of(register: Register) -> str:
    return register.value


def writes_never_go_back(world: World) -> None:
    for member in world.members:
        machine = member.machine
        assert machine is None or isinstance(machine, Register)
        assert machine is None or machine.writes <= member.applied + 1


RIGHT = Service(
    Register,
    operations=new_value,
    query=value_of,
    model=RegisterModel(),
    invariant=writes_never_go_back,
)
# Reads the machine of whichever member, without asking the group.
READS_ITS_OWN_STATE = Service(
    Register, operations=new_value, query=value_of, reads_locally=True, model=RegisterModel()
)


def no_more_than_five_writes(world: World) -> None:
    for machine in world.machines.values():
        assert isinstance(machine, Register)
        assert machine.writes <= 5


BOUNDED = Service(Register, operations=new_value, invariant=no_more_than_five_writes)


class TakesFromASet:
    """Gives out a waiting name: whichever the set has first."""

    def __init__(self) -> None:
        self.waiting: set[str] = set()

    def apply(self, entries: Sequence[Entry]) -> list[object]:
        results: list[object] = []
        for entry in entries:
            self.waiting.add(entry.body.hex())
            results.append(self.waiting.pop() if len(self.waiting) > 3 else None)
        return results


class ForgetsAField:
    """A register whose snapshots lack the number of writes."""

    def __init__(self) -> None:
        self.value = b""
        self.writes = 0

    def apply(self, entries: Sequence[Entry]) -> list[object]:
        for entry in entries:
            self.value = entry.body
            self.writes += 1
        return [None] * len(entries)

    def snapshot(self) -> list[bytes]:
        return [self.value]

    def restore(self, chunks: Iterator[bytes]) -> None:
        self.value = b"".join(chunks)


class StampsTheTime:
    """Keeps the time of each entry by the member's clock."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def apply(self, entries: Sequence[Entry]) -> list[object]:
        self.times += [time.time() for _ in entries]
        return [None] * len(entries)


class StampsTheDay:
    """Keeps the day of each entry: members differ about it once a day only."""

    def __init__(self) -> None:
        self.days: list[str] = []

    def apply(self, entries: Sequence[Entry]) -> list[object]:
        self.days += [date.today().isoformat() for _ in entries]
        return [None] * len(entries)


class Draws:
    """Gives out random numbers."""

    def apply(self, entries: Sequence[Entry]) -> list[object]:
        return [random.random() for _ in entries]


class CountsRuns:
    """Its results depend on which entries it gets together."""

    def apply(self, entries: Sequence[Entry]) -> list[object]:
        return [len(entries)] * len(entries)


class SavesTooLate:
    """Its snapshot is read while entries are applied, and sees them."""

    def __init__(self) -> None:
        self.bodies: list[str] = []

    def apply(self, entries: Sequence[Entry]) -> list[object]:
        self.bodies += [entry.body.hex() for entry in entries]
        return [None] * len(entries)

    def snapshot(self) -> Iterator[bytes]:
        yield json.dumps(self.bodies).encode()

    def restore(self, chunks: Iterator[bytes]) -> None:
        self.bodies = json.loads(b"".join(chunks))


class Raises:
    """Does not take every body."""

    def apply(self, entries: Sequence[Entry]) -> list[object]:
        return [entry.body.decode("ascii") for entry in entries]


class LosesResults:
    """Returns no result for the last entry of a long run."""

    def apply(self, entries: Sequence[Entry]) -> list[object]:
        return [None] * min(len(entries), 2)


class CannotBeSaved:
    """Raises when it is saved."""

    def __init__(self) -> None:
        self.bodies: set[bytes] = set()

    def apply(self, entries: Sequence[Entry]) -> list[object]:
        self.bodies.update(entry.body for entry in entries)
        return [None] * len(entries)

    def snapshot(self) -> list[bytes]:
        return [json.dumps(self.bodies).encode()]

    def restore(self, chunks: Iterator[bytes]) -> None:
        self.bodies = set(json.loads(b"".join(chunks)))


class Seats:
    """Who has each seat; the first buyer keeps it."""

    def __init__(self) -> None:
        self.owners: dict[str, str] = {}

    def apply(self, entries: Sequence[Entry]) -> list[object]:
        return [self.sell(*json.loads(entry.body)[1:]) for entry in entries]

    def sell(self, seat: str, buyer: str) -> str:
        return self.owners.setdefault(seat, buyer)


class SoldTwice(Seats):
    """The last buyer gets the seat."""

    def sell(self, seat: str, buyer: str) -> str:
        self.owners[seat] = buyer
        return buyer


class OneSeat:
    """What clients may see of one seat."""

    initial = "free"

    def step(self, owner: Hashable, operation: Operation) -> Hashable | None:
        if operation.function == "buy":
            return operation.value if owner == "free" else None
        return owner if not operation.ok or operation.result == owner else None


class Shop:
    """As `jepsen-like run --service` takes it: seats that clients buy and look at."""

    machine: type[Seats] = Seats
    model = OneSeat

    def generate(self, caller: Caller) -> Call:
        seat = f"seat {caller.number // 20}"
        if caller.random.random() < 0.5:
            return Call("owner", seat, is_read=True)
        return Call("buy", seat, f"buyer {caller.number}")

    def query(self, machine: Seats, call: Call) -> str:
        return machine.owners.get(str(call.key), "free")

    def answered(self, call: Call, owner: object) -> object:
        if owner != call.value:
            raise CallFailed(f"{owner} was first")
        return owner


class ShopThatSellsTwice(Shop):
    machine = SoldTwice


class ShopOfThreeSeats(Shop):
    def invariant(self, machine: Seats) -> str | None:
        return f"{len(machine.owners)} seats are sold" if len(machine.owners) > 3 else None


def objects() -> Objects:
    return Objects(prices=ReplicatedDict(), visits=ReplicatedCounter(), jobs=ReplicatedQueue())


def with_sessions() -> WithSessions:
    return WithSessions(objects())


def command(random: random.Random) -> bytes:
    return encode_command(
        random.choice(
            [
                Command("prices", "add", [random.choice("abc"), random.randrange(9)]),
                Command("visits", "add", [random.randrange(9)]),
                Command("jobs", "put", [random.randrange(9)]),
                Command("jobs", "take", [1]),
                Command("nobody", "knows", []),
            ]
        )
    )


OBJECTS = Service(objects, operations=command)
WITH_SESSIONS = Service(with_sessions, operations=command)
an_object = Register()


def the_same_object() -> Register:
    return an_object

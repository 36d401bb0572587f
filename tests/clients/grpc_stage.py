"""What a feature of a gRPC client runs on, and how it compares what was sent with what came."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from remoting.wire.signature import Credentials
from tests.clients import own_client
from tests.clients.client_script import Failed
from tests.clients.driver import Came, Driver, Told
from tests.clients.local_proxy import LocalProxy
from tests.clients.own_client import Own
from tests.clients.scenarios import Place
from tests.clients.toolchains import GrpcClient

# By a client on a busy machine, which also looks for its queues every 5 s.
SOON_S = 60

# A message that is sent to a waiting consumer should be there at once.
WOKEN_S = 2.0

# A receive that finds nothing ends after so long.
NOTHING_S = 6

KIBIBYTE = 1024
MEBIBYTE = 1024 * KIBIBYTE
MOST_BYTES = 4 * MEBIBYTE

NO_PUSH: frozenset[GrpcClient] = frozenset({"rust5"})
NO_TLS: frozenset[GrpcClient] = frozenset({"rust5"})


@dataclass(frozen=True)
class Stage:
    """What a feature runs on.

    Attributes:
        place: the brokers, and a topic's name of its own.
        client: the one that is driven.
    """

    place: Place
    client: GrpcClient

    @property
    def topic(self) -> str:
        """A topic of its own."""
        return self.place.topic

    @property
    def group(self) -> str:
        """A consumer group of its own."""
        return self.place.group

    @property
    def own(self) -> Own:
        """Where this project's own client connects, as the administrator."""
        return Own(self.place.cluster.names, self.place.cluster.admin)

    @property
    def pushes(self) -> bool:
        """Whether the client has a push consumer."""
        return self.client not in NO_PUSH

    def driver(
        self,
        endpoints: str = "",
        environment: dict[str, str] | None = None,
        *,
        user: Credentials | None = None,
    ) -> Driver:
        """A program of the client, which asks the shared proxy if no endpoints are given."""
        reach = self.place.proxy.reach
        return Driver(
            self.place.toolchains[self.client],
            self.place.folder,
            endpoints or self.place.proxy.address(),
            {**believing(reach.authority), **(environment or {})},
            tls=reach.tls and self.client not in NO_TLS,
            user=user or reach.user,
        )

    def proxy(self, *options: str) -> LocalProxy:
        """A proxy of its own, reached as the shared one."""
        settings = (*self.place.proxy.reach.options, *options)
        return LocalProxy(self.place.folder, self.place.cluster.names, *settings)

    def make_topic(self, kind: str = "normal", name: str = "") -> None:
        """Make the topic, or another one."""
        own_client.make_topic(self.own, name or self.topic, kind)

    def make_group(
        self,
        *,
        in_order: bool = False,
        retries: int = 16,
        attributes: Mapping[str, str] | None = None,
    ) -> None:
        """Make the group with rules of its own; otherwise its first consumer makes it."""
        own_client.make_group(
            self.own,
            self.topic,
            self.group,
            in_order=in_order,
            retries=retries,
            attributes=attributes,
        )

    def make_lite(self, **attributes: str) -> None:
        """Make the topic for lite topics, and the group that reads them; "_" is "." in names."""
        self.make_topic("lite")
        given = {f"lite.sub.{name.replace('_', '.')}": value for name, value in attributes.items()}
        self.make_group(in_order=True, attributes={"lite.bind.topic": self.topic, **given})

    def message(self, number: int, body: bytes = b"", **more: object) -> Told:
        """A message to send, whose first key has its number."""
        text = f"{self.topic}-{number}"
        return {
            "topic": self.topic,
            "body": body or f"{text} \N{SNOWMAN}\x00".encode() + bytes(range(256)),
            "tag": ("red", "green", "blue")[number % 3],
            "keys": [text, f"all-{self.topic}"],
            "properties": {
                "n": str(number),
                "greeting": "gr\N{LATIN SMALL LETTER U WITH DIAERESIS}n",
            },
            **more,
        }

    def messages(self, count: int, first: int = 0) -> list[Told]:
        """Messages to send, numbered from the first."""
        return [self.message(number) for number in range(first, first + count)]

    def start_consumer(self, driver: Driver, **expression: str) -> None:
        """Start a push consumer of the topic if the client has one, or a simple one."""
        driver.consumer(
            "push" if self.pushes else "simple", self.group, self.topic, expression=expression
        )

    def all_consumed(self, driver: Driver, count: int, within_s: float = SOON_S) -> list[Came]:
        """Wait until what was started has consumed so many messages; all deliveries."""
        if self.pushes:
            return driver.wait_for(count, within_s)
        return driver.collect(count, within_s)


def believing(authority: Path | None) -> dict[str, str]:
    """The environment of those clients that check certificates: the others believe any."""
    return {} if authority is None else {"GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": str(authority)}


def number_of(came: Came) -> int:
    """The number of a message."""
    return int(came.properties["n"])


def check_same(sent: Sequence[Told], came: Iterable[Came], ids: Sequence[str] = ()) -> None:
    """Check that each message that was sent came once, as it was. Raises `Failed`."""
    by_key: dict[str, list[Came]] = {}
    for delivery in came:
        by_key.setdefault(str(delivery.properties.get("n")), []).append(delivery)
    expected = {one["properties"]["n"] for one in sent}
    if strange := sorted(set(by_key) - expected):
        raise Failed(f"messages {strange[:3]} came, which should not")
    for at, one in enumerate(sent):
        number = one["properties"]["n"]
        found = by_key.get(number, [])
        if len(found) != 1:
            raise Failed(f"message {number} came {len(found)} times")
        [got] = found
        pairs = [
            ("topic", one["topic"], got.topic),
            ("tag", one["tag"], got.tag),
            ("keys", sorted(one["keys"]), sorted(got.keys)),
            ("group", one.get("group", ""), got.group),
            ("lite topic", one.get("lite", ""), got.lite),
            ("attempt", 1, got.attempt),
            *((name, value, got.properties.get(name)) for name, value in one["properties"].items()),
        ]
        if ids:
            pairs.append(("id", ids[at], got.id))
        for what, was, now in pairs:
            if was != now:
                raise Failed(f"{what} of message {number} was {was!r}, and came as {now!r}")
        if got.body != one["body"]:
            raise Failed(f"the body of message {number} came changed ({len(got.body)} bytes)")


def check_nothing(driver: Driver) -> None:
    """Check that a simple consumer gets nothing."""
    if again := driver.receive():
        raise Failed(f"message {again[0].key} came, attempt {again[0].attempt}, which should not")


def spread(
    came: Iterable[Came], is_message: Callable[[Came], bool] = lambda _: True
) -> Counter[int]:
    """How often each number came."""
    return Counter(number_of(one) for one in came if is_message(one))


def receive_all(driver: Driver, count: int, invisible_s: int = 30) -> list[Came]:
    """Receive so many messages, and acknowledge none."""
    deadline = time.monotonic() + SOON_S
    found: list[Came] = []
    while len(found) < count:
        if time.monotonic() > deadline:
            raise Failed(f"{len(found)} of {count} messages came")
        found += driver.receive(16, invisible_s)
    return found


def expect_attempts(before: Sequence[Came], again: Sequence[Came], attempt: int) -> None:
    """Check that these messages came again, as they were, as that attempt."""
    was = {one.id: one for one in before}
    for one in again:
        first = was.pop(one.id, None)
        if first is None:
            raise Failed(f"message {one.key} came again, which should not")
        if one.attempt != attempt:
            raise Failed(f"message {one.key} came as attempt {one.attempt}, not {attempt}")
        if (one.body, one.tag, one.keys) != (first.body, first.tag, first.keys):
            raise Failed(f"message {one.key} came again, changed")
        if one.topic != first.topic:
            raise Failed(f"message {one.key} came again from topic {one.topic}")
    if was:
        raise Failed(f"{len(was)} messages did not come again")


def check_rest(stage: Stage, driver: Driver, wanted: Sequence[Told]) -> None:
    """Check that no other message comes; of a push consumer, all."""
    if stage.pushes:
        time.sleep(2)
        check_same(wanted, driver.came())
    else:
        check_nothing(driver)


def expect_numbers(came: Sequence[Came], numbers: Sequence[int]) -> None:
    """Check which messages came, in order."""
    if (found := [number_of(one) for one in came]) != list(numbers):
        raise Failed(f"messages {found} came, not {list(numbers)}")


def check_dead_letters(stage: Stage, numbers: Sequence[int]) -> None:
    """Check which messages are dead letters of the group."""
    found = own_client.consume(
        stage.own, f"%DLQ%{stage.group}", f"{stage.group}-dead", len(numbers), SOON_S
    )
    if sorted(int(one.properties["n"]) for one in found) != sorted(numbers):
        raise Failed(f"dead letters are {[one.properties['n'] for one in found]}")

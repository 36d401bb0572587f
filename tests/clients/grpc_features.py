"""What clients of RocketMQ 5's gRPC protocol must be able to do, the same for each of them."""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from dledger_mq import Message, ReceivedMessage
from tests.clients import own_client
from tests.clients.client_script import Failed
from tests.clients.driver import Came, Driver, Refused, Told
from tests.clients.local_proxy import LocalProxy
from tests.clients.scenarios import Place
from tests.clients.toolchains import GrpcClient

# By a client on a busy machine, which also looks for its queues every 5 s.
SOON_S = 60

# A message that is sent to a waiting consumer should be there at once.
WOKEN_S = 2.0

# A receive that finds nothing ends after so long.
NOTHING_S = 6

# Half messages are checked 6 s after their arrival, and every 30 s.
CHECKED_S = 120

# A proxy hears nothing of a dead client for some time, and messages stay with it for 60 s more.
TAKEOVER_S = 200

KIBIBYTE = 1024
MEBIBYTE = 1024 * KIBIBYTE
MOST_BYTES = 4 * MEBIBYTE

# Go's client sends 2 MiB at most; those in JavaScript and Rust take answers of 4 MiB at most, and
# what stands around the body counts.
LARGEST_BODY: dict[GrpcClient, int] = {
    "go5": 2 * MEBIBYTE - 4 * KIBIBYTE,
    "node5": MOST_BYTES - 4 * KIBIBYTE,
    "rust5": MOST_BYTES - 4 * KIBIBYTE,
}

# Codes of refusals, which the clients show.
TOPIC_NOT_FOUND = 40402
BODY_TOO_LARGE = 41301

NO_PUSH: frozenset[GrpcClient] = frozenset({"rust5"})


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
    def names(self) -> str:
        """The name server."""
        return self.place.cluster.names

    @property
    def pushes(self) -> bool:
        """Whether the client has a push consumer."""
        return self.client not in NO_PUSH

    def driver(self, endpoints: str = "", environment: dict[str, str] | None = None) -> Driver:
        """A program of the client, which asks the shared proxy if no endpoints are given."""
        return Driver(
            self.place.toolchains[self.client],
            self.place.folder,
            endpoints or self.place.proxy.address(),
            environment,
        )

    def proxy(self, *options: str) -> LocalProxy:
        """A proxy of its own."""
        return LocalProxy(self.place.folder, self.names, *options)

    def make_topic(self, kind: str = "normal", name: str = "") -> None:
        """Make the topic, or another one."""
        own_client.make_topic(self.names, name or self.topic, kind)

    def make_group(self, *, in_order: bool = False, retries: int = 16) -> None:
        """Make the group with rules of its own; otherwise its first consumer makes it."""
        own_client.make_group(
            self.names, self.topic, self.group, in_order=in_order, retries=retries
        )

    def message(self, number: int, body: bytes = b"", **more: object) -> Told:
        """A message to send, whose first key has its number."""
        text = f"{self.topic}-{number}"
        return {
            "topic": self.topic,
            "body": body or f"{text} \N{SNOWMAN}\x00".encode() + bytes(range(256)),
            "tag": ("red", "green", "blue")[number % 3],
            "keys": [text, f"all-{self.topic}"],
            "properties": {"n": str(number), "greeting": "gr\N{LATIN SMALL LETTER U WITH DIAERESIS}n"},
            **more,
        }

    def messages(self, count: int, first: int = 0) -> list[Told]:
        """Messages to send, numbered from the first."""
        return [self.message(number) for number in range(first, first + count)]

    def start_consumer(self, driver: Driver, **options: str) -> None:
        """Start a push consumer of the topic if the client has one, or a simple one."""
        driver.consumer("push" if self.pushes else "simple", self.group, self.topic, **options)

    def all_consumed(self, driver: Driver, count: int, within_s: float = SOON_S) -> list[Came]:
        """Wait until what was started has consumed so many messages; all deliveries."""
        if self.pushes:
            return driver.wait_for(count, within_s)
        return driver.collect(count, within_s)


Feature = Callable[[Stage], str | None]


def number_of(came: Came) -> int:
    """The number of a message."""
    return int(came.properties["n"])


def check_same(sent: Sequence[Told], came: Iterable[Came], ids: Sequence[str] = ()) -> None:
    """Check that each message that was sent came once, as it was. Raises `Failed`."""
    by_key: dict[str, list[Came]] = {}
    for one in came:
        by_key.setdefault(str(one.properties.get("n")), []).append(one)
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


def spread(came: Iterable[Came], is_message: Callable[[Came], bool] = lambda _: True) -> Counter[int]:
    """How often each number came."""
    return Counter(number_of(one) for one in came if is_message(one))


# --- Producers, and simple consumers ---------------------------------------------------------------


def sends_and_receives(stage: Stage) -> None:
    """Everything of a message comes as it was sent, once."""
    stage.make_topic()
    with stage.driver() as driver:
        driver.producer(stage.topic)
        driver.consumer("simple", stage.group, stage.topic, wait_s=NOTHING_S)
        sent = stage.messages(40)
        ids = driver.send(sent)
        check_same(sent, driver.collect(len(sent), SOON_S), ids)
        check_nothing(driver)
        driver.ask("close", name="simple")
        driver.ask("close", name="producer")


def sends_all_sizes(stage: Stage) -> str:
    """Bodies of one byte to the largest, of noise and of nothing."""
    stage.make_topic()
    largest = LARGEST_BODY.get(stage.client, MOST_BYTES)
    noise = random.Random(stage.topic).randbytes(largest)
    sizes = (1, 4095, 4096, 4097, 65_536, MEBIBYTE, largest)
    bodies = [body[:size] for size in sizes for body in (noise, bytes(size))]
    sent = [stage.message(number, body) for number, body in enumerate(bodies)]
    with stage.driver() as driver:
        driver.producer(stage.topic)
        driver.consumer("simple", stage.group, stage.topic, wait_s=NOTHING_S)
        ids = driver.send(sent)
        # One at a time: the answers that some take are no larger than a body.
        check_same(sent, driver.collect(len(sent), SOON_S, most=1), ids)
    return f"up to {largest} bytes"


def sends_at_once(stage: Stage) -> None:
    """Sixty-four sends at the same time."""
    stage.make_topic()
    with stage.driver() as driver:
        driver.producer(stage.topic)
        driver.consumer("simple", stage.group, stage.topic, wait_s=NOTHING_S)
        sent = stage.messages(64)
        ids = driver.send(sent, at_once=True)
        check_same(sent, driver.collect(len(sent), SOON_S), ids)


def gets_again(stage: Stage) -> None:
    """What is not acknowledged comes again after its invisible time, counted."""
    stage.make_topic()
    with stage.driver() as driver:
        driver.producer(stage.topic)
        driver.consumer("simple", stage.group, stage.topic, wait_s=NOTHING_S)
        driver.send(stage.messages(4))
        first = receive_all(driver, 4, invisible_s=12)
        began = time.monotonic()
        driver.ack(first[0])
        driver.ack(first[1])
        again = receive_all(driver, 2)
        if time.monotonic() - began < 12 - 5:
            raise Failed("they came again before their invisible time had passed")
        expect_attempts(first[2:], again, 2)
        for one in again:
            driver.ack(one)
        check_nothing(driver)


def changes_invisible_time(stage: Stage) -> None:
    """A time that is made shorter, and one that is made longer; then acknowledged by it."""
    stage.make_topic()
    with stage.driver() as driver:
        driver.producer(stage.topic)
        driver.consumer("simple", stage.group, stage.topic, wait_s=NOTHING_S)
        driver.send(stage.messages(3))
        short, long, kept = receive_all(driver, 3, invisible_s=15)
        driver.ask("change", name="simple", number=short.number, invisible_s=10)
        driver.ask("change", name="simple", number=long.number, invisible_s=40)
        [again] = receive_all(driver, 1)
        expect_attempts([short], [again], 2)
        driver.ack(again)
        driver.ack(long)
        [again] = receive_all(driver, 1)
        expect_attempts([kept], [again], 2)
        driver.ack(again)
        check_nothing(driver)


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


def is_woken(stage: Stage) -> str:
    """A receive that waits gets a message when it is sent."""
    stage.make_topic()
    with stage.driver() as driver:
        driver.producer(stage.topic)
        driver.consumer("simple", stage.group, stage.topic, wait_s=15)
        longest = 0.0
        for number in range(3):
            waiting = driver.begin_receive()
            time.sleep(3)
            began = time.monotonic()
            driver.send([stage.message(number)])
            came = driver.received(waiting)
            longest = max(longest, time.monotonic() - began)
            if [number_of(one) for one in came] != [number]:
                raise Failed(f"a receive that waited got {len(came)} messages")
            driver.ack(came[0])
    if longest > WOKEN_S:
        raise Failed(f"a message came {longest:.1f} s after it was sent")
    return f"at the latest {longest:.2f} s after a send"


# --- Push consumers --------------------------------------------------------------------------------


def pushes(stage: Stage) -> str:
    """What was there, and what comes later, is consumed once; a consumer that waits is woken."""
    stage.make_topic()
    with stage.driver() as driver:
        driver.producer(stage.topic)
        sent = stage.messages(50)
        ids = driver.send(sent, at_once=True)
        driver.consumer("push", stage.group, stage.topic)
        driver.wait_for(50, SOON_S)
        more = stage.messages(50, first=50)
        ids += driver.send(more, at_once=True)
        driver.wait_for(100, SOON_S)
        longest = 0.0
        for number in (100, 101, 102):
            time.sleep(3)
            began = time.time()
            more.append(stage.message(number))
            ids += driver.send(more[-1:])
            came = driver.wait_for(number + 1, SOON_S)
            longest = max(longest, came[-1].at_s - began)
        time.sleep(2)
        check_same([*sent, *more], driver.came(), ids)
        driver.ask("close", name="push")
    if longest > WOKEN_S:
        raise Failed(f"a message came {longest:.1f} s after it was sent")
    return f"at the latest {longest:.2f} s after a send"


def push_retries(stage: Stage) -> str:
    """Messages whose listener fails come again, counted; the others once."""
    stage.make_topic()
    failing = {2: "1", 5: "2", 8: "1"}
    sent = stage.messages(10)
    for number, times in failing.items():
        sent[number]["properties"]["fail"] = times
    with stage.driver() as driver:
        driver.producer(stage.topic)
        driver.consumer("push", stage.group, stage.topic)
        driver.send(sent)
        wanted = Counter({number: 1 + int(failing.get(number, "0")) for number in range(10)})
        came = driver.wait_until(
            "repeats", lambda came: not wanted - spread(came), SOON_S * 2
        )
        time.sleep(3)
        came = driver.came()
        if (found := spread(came)) != wanted:
            raise Failed(f"deliveries, by number: {sorted(found.items())}")
        check_same(sent, [one for one in came if one.attempt == 1])
        for number in failing:
            attempts = [one.attempt for one in came if number_of(one) == number]
            if attempts != list(range(1, wanted[number] + 1)):
                raise Failed(f"message {number} came as attempts {attempts}")
            if len({(one.body, one.topic, one.id) for one in came if number_of(one) == number}) > 1:
                raise Failed(f"message {number} came again, changed")
        pauses = [
            later.at_s - one.at_s
            for one, later in pairs_of(one for one in came if number_of(one) == 5)
        ]
        return f"pauses of {' and '.join(f'{pause:.0f} s' for pause in pauses)}"


def pairs_of(came: Iterable[Came]) -> list[tuple[Came, Came]]:
    """Each delivery with the one after it."""
    listed = list(came)
    return list(zip(listed, listed[1:], strict=False))


def two_groups(stage: Stage) -> None:
    """Two groups get everything, and two members of a group share it."""
    stage.make_topic()
    with stage.driver() as first, stage.driver() as second:
        first.producer(stage.topic)
        first.consumer("push", f"{stage.group}-a", stage.topic, name="a")
        first.consumer("push", f"{stage.group}-b", stage.topic, name="b")
        second.consumer("push", f"{stage.group}-b", stage.topic, name="b")
        sent = stage.messages(60)
        first.send(sent, at_once=True)
        first.wait_for(60, SOON_S, "a")
        deadline = time.monotonic() + SOON_S
        while len(first.came("b")) + len(second.came("b")) < 60 and time.monotonic() < deadline:
            time.sleep(0.1)
        time.sleep(2)
        check_same(sent, first.came("a"))
        check_same(sent, [*first.came("b"), *second.came("b")])


def filters_by_tag(stage: Stage) -> None:
    """Two tags of three."""
    stage.make_topic()
    with stage.driver() as driver:
        driver.producer(stage.topic)
        stage.start_consumer(driver, tag="red || blue")
        sent = stage.messages(21)
        driver.send(sent, at_once=True)
        stage.all_consumed(driver, 14)
        check_rest(stage, driver, [one for one in sent if one["tag"] != "green"])


def filters_by_sql(stage: Stage) -> None:
    """A condition on a property and the tag."""
    stage.make_topic()
    with stage.driver() as driver:
        driver.producer(stage.topic)
        stage.start_consumer(driver, sql="(n BETWEEN 7 AND 13) AND TAGS <> 'green'")
        sent = stage.messages(21)
        driver.send(sent, at_once=True)
        wanted = [one for one in sent[7:14] if one["tag"] != "green"]
        stage.all_consumed(driver, len(wanted))
        check_rest(stage, driver, wanted)


def check_rest(stage: Stage, driver: Driver, wanted: Sequence[Told]) -> None:
    """Check that no other message comes; of a push consumer, all."""
    if stage.pushes:
        time.sleep(2)
        check_same(wanted, driver.came())
    else:
        check_nothing(driver)


# --- In order --------------------------------------------------------------------------------------


def in_order(stage: Stage) -> str:
    """The messages of a message group come in order; a failed one again before those after it."""
    stage.make_topic("fifo")
    stage.make_group(in_order=True)
    sent = [stage.message(number, group=f"room-{number % 5}") for number in range(100)]
    for number in (11, 42, 43):
        sent[number]["properties"]["fail"] = "1"
    with stage.driver() as driver:
        driver.producer(stage.topic)
        driver.send(sent[:50])
        driver.consumer("push", stage.group, stage.topic)
        driver.send(sent[50:])
        driver.wait_for(100, SOON_S * 2)
        time.sleep(2)
        came = driver.came()
    for room in range(5):
        numbers = [number_of(one) for one in came if one.group == f"room-{room}"]
        wanted = [
            number
            for number in range(room, 100, 5)
            for _ in range(2 if number in (11, 42, 43) else 1)
        ]
        if numbers != wanted:
            raise Failed(f"room-{room} came as {numbers}")
    attempts = {number_of(one): one.attempt for one in came if number_of(one) in (11, 42, 43)}
    return f"repeats say attempt {sorted(set(attempts.values()))}"


def in_order_simply(stage: Stage) -> None:
    """A queue's next messages are given when those before are acknowledged; or these again."""
    stage.make_topic("fifo")
    stage.make_group(in_order=True)
    sent = [stage.message(number, group="room") for number in range(6)]
    with stage.driver() as driver:
        driver.producer(stage.topic)
        driver.consumer("simple", stage.group, stage.topic, wait_s=NOTHING_S)
        driver.send(sent)
        first = receive_some(driver, 2, 30)
        expect_numbers(first, [0, 1])
        check_nothing(driver)
        for one in first:
            driver.ack(one)
        expect_numbers(receive_some(driver, 2, 10), [2, 3])
        again = receive_some(driver, 2, 30)
        expect_numbers(again, [2, 3])
        if {one.attempt for one in again} != {2}:
            raise Failed(f"they came again as attempts {[one.attempt for one in again]}")
        for one in again:
            driver.ack(one)
        last = receive_some(driver, 2, 30)
        expect_numbers(last, [4, 5])
        for one in last:
            driver.ack(one)
        check_nothing(driver)


def receive_some(driver: Driver, most: int, invisible_s: int) -> list[Came]:
    """Receive until something comes."""
    deadline = time.monotonic() + SOON_S
    while not (came := driver.receive(most, invisible_s)):
        if time.monotonic() > deadline:
            raise Failed("nothing came")
    return came


def expect_numbers(came: Sequence[Came], numbers: Sequence[int]) -> None:
    """Check which messages came, in order."""
    if (found := [number_of(one) for one in came]) != list(numbers):
        raise Failed(f"messages {found} came, not {list(numbers)}")


def dead_letters_in_order(stage: Stage) -> None:
    """A message that always fails becomes a dead letter, and those after it come."""
    stage.make_topic("fifo")
    stage.make_group(in_order=True, retries=2)
    sent = [stage.message(number, group="room") for number in range(6)]
    sent[2]["properties"]["fail"] = "99"
    with stage.driver() as driver:
        driver.producer(stage.topic)
        driver.consumer("push", stage.group, stage.topic)
        driver.send(sent)
        driver.wait_for(6, SOON_S * 2)
        time.sleep(3)
        expect_numbers(driver.came(), [0, 1, 2, 2, 2, 3, 4, 5])
    check_dead_letters(stage, [2])


# --- Dead letters, times, transactions -------------------------------------------------------------


def dead_letters(stage: Stage) -> None:
    """Messages that always fail become dead letters after the group's attempts."""
    stage.make_topic()
    stage.make_group(retries=1)
    sent = stage.messages(5)
    for number in (1, 3):
        sent[number]["properties"]["fail"] = "99"
    with stage.driver() as driver:
        driver.producer(stage.topic)
        if stage.pushes:
            driver.consumer("push", stage.group, stage.topic)
            driver.send(sent)
            wanted = Counter({0: 1, 1: 2, 2: 1, 3: 2, 4: 1})
            driver.wait_until("repeats", lambda came: not wanted - spread(came), SOON_S)
            check_dead_letters(stage, [1, 3])
            if (found := spread(driver.came())) != wanted:
                raise Failed(f"deliveries, by number: {sorted(found.items())}")
        else:
            driver.consumer("simple", stage.group, stage.topic, wait_s=NOTHING_S)
            driver.send(sent)
            for attempt in (1, 2):
                for one in receive_all(driver, 5 if attempt == 1 else 2, invisible_s=10):
                    if number_of(one) not in (1, 3):
                        driver.ack(one)
            time.sleep(10)
            check_nothing(driver)
            check_dead_letters(stage, [1, 3])


def check_dead_letters(stage: Stage, numbers: Sequence[int]) -> None:
    """Check which messages are dead letters of the group."""
    found = own_client.consume(
        stage.names, f"%DLQ%{stage.group}", f"{stage.group}-dead", len(numbers), SOON_S
    )
    if sorted(int(one.properties["n"]) for one in found) != sorted(numbers):
        raise Failed(f"dead letters are {[one.properties['n'] for one in found]}")


def delays(stage: Stage) -> str:
    """Messages come at their times, none early."""
    stage.make_topic("delay")
    with stage.driver() as driver:
        driver.producer(stage.topic)
        stage.start_consumer(driver)
        at_ms = [(int(time.time()) + 5 + number) * 1000 for number in range(4)]
        sent = [stage.message(number, at=at) for number, at in enumerate(at_ms)]
        driver.send(sent)
        came = stage.all_consumed(driver, len(sent))
        late = [one.at_s - at_ms[number_of(one)] / 1000 for one in came]
        if min(late) < 0:
            raise Failed(f"a message came {-min(late):.2f} s early")
        check_same(sent, came)
    return f"at most {max(late):.2f} s late"


def recalls(stage: Stage) -> None:
    """What is recalled does not come, and the rest does."""
    stage.make_topic("delay")
    with stage.driver() as driver:
        driver.producer(stage.topic)
        stage.start_consumer(driver)
        at_ms = (int(time.time()) + 10) * 1000
        sent = [stage.message(number, at=at_ms) for number in range(6)]
        receipts = driver.receipts(sent)
        if not all(one.recall for one in receipts):
            raise Failed(f"no recall handle: {receipts[0].error or receipts[0].id}")
        for one in receipts[::2]:
            told = driver.ask("recall", name="producer", topic=stage.topic, handle=one.recall)
            if told["id"] != one.id:
                raise Failed(f"{told['id']} was recalled instead of {one.id}")
        stage.all_consumed(driver, 3)
        time.sleep(3)
        check_rest(stage, driver, sent[1::2])


def transacts(stage: Stage) -> str:
    """Committed, rolled back, and both when the broker asks."""
    stage.make_topic("transaction")
    ends = ("commit", "rollback", "none", "none", "commit")
    checks = ("", "", "commit", "rollback", "")
    with stage.driver() as driver:
        driver.producer(stage.topic, transactional=True)
        stage.start_consumer(driver)
        for number, end in enumerate(ends):
            message = stage.message(number)
            if checks[number]:
                message["properties"]["check"] = checks[number]
            driver.transact(message, end)
        began = time.monotonic()
        came = stage.all_consumed(driver, 3, CHECKED_S)
        asked = time.monotonic() - began
        deadline = time.monotonic() + CHECKED_S
        while len({number_of(one) for one in driver.came("check")}) < 2:
            if time.monotonic() > deadline:
                raise Failed("no check of the message that is then rolled back")
            time.sleep(0.2)
        time.sleep(3)
        if stage.pushes:
            came = driver.came()
        else:
            check_nothing(driver)
        if spread(came) != Counter([0, 2, 4]):
            raise Failed(f"deliveries, by number: {sorted(spread(came).items())}")
        if (numbers := {number_of(one) for one in driver.came("check")}) != {2, 3}:
            raise Failed(f"checks of messages {sorted(numbers)}")
    return f"committed by a check after {asked:.0f} s"


def recovers_an_orphan(stage: Stage) -> str:
    """Another producer of the topic is asked about the half message of one that was killed."""
    stage.make_topic("transaction")
    with stage.driver() as living:
        living.producer(stage.topic, transactional=True)
        stage.start_consumer(living)
        with stage.driver() as dying:
            dying.producer(stage.topic, transactional=True)
            message = stage.message(0)
            message["properties"]["check"] = "commit"
            dying.transact(message, "none")
            dying.kill()
        began = time.monotonic()
        stage.all_consumed(living, 1, CHECKED_S)
        return f"after {time.monotonic() - began:.0f} s"


# --- Refusals --------------------------------------------------------------------------------------


def is_refused_a_large_body(stage: Stage) -> str:
    """A body of 4 MiB and a byte is refused, and the producer goes on."""
    stage.make_topic()
    with stage.driver() as driver:
        driver.producer(stage.topic)
        [receipt] = driver.receipts([stage.message(0, bytes(MOST_BYTES + 1))])
        if not receipt.error:
            raise Failed("it was taken")
        driver.send([stage.message(1)])
        driver.consumer("simple", stage.group, stage.topic, wait_s=NOTHING_S)
        expect_numbers(driver.collect(1, SOON_S), [1])
    return f"{receipt.error:.60}"


def is_refused_an_unknown_topic(stage: Stage) -> str:
    """A topic that does not exist."""
    stage.make_topic()
    with stage.driver() as driver:
        driver.producer(stage.topic)
        wrong = {**stage.message(0), "topic": f"{stage.topic}-unknown"}
        [receipt] = driver.receipts([wrong])
        if not receipt.error:
            raise Failed("it was taken")
        if receipt.code not in (None, TOPIC_NOT_FOUND):
            raise Failed(f"it was refused by {receipt.code}: {receipt.error}")
        driver.send([stage.message(1)])
    return f"{receipt.error:.60}"


def is_refused_a_wrong_type(stage: Stage) -> str:
    """A message of a group for a topic of normal ones."""
    stage.make_topic()
    with stage.driver() as driver:
        driver.producer(stage.topic)
        driver.send([stage.message(1)])
        [receipt] = driver.receipts([stage.message(0, group="room")])
        if not receipt.error:
            raise Failed("it was taken")
        driver.consumer("simple", stage.group, stage.topic, wait_s=NOTHING_S)
        expect_numbers(driver.collect(1, SOON_S), [1])
        check_nothing(driver)
    return f"{receipt.error:.60}"


# --- With clients of remoting ----------------------------------------------------------------------


def reads_remoting(stage: Stage) -> None:
    """What a client of remoting sent, also compressed, and what one gave back before."""
    stage.make_topic()
    bodies = (b"\x00\xff" * 50, b"compressible " * 3000, bytes(MEBIBYTE))
    sent = [stage.message(number, body) for number, body in enumerate(bodies)]
    own_client.send(stage.names, [remoting(one) for one in sent])
    with stage.driver() as driver:
        driver.consumer("simple", stage.group, stage.topic, wait_s=NOTHING_S)
        check_same(sent, driver.collect(len(sent), SOON_S))
        check_nothing(driver)
        driver.ask("close", name="simple")
        # Given back by a consumer of remoting, in another group.
        group = f"{stage.group}-again"
        failed = own_client.consume(
            stage.names, stage.topic, group, len(sent), SOON_S, is_success=False
        )
        if {one.reconsume_times for one in failed} != {0}:
            raise Failed("a remoting client did not get first deliveries")
        driver.consumer("simple", group, stage.topic, name="again", wait_s=NOTHING_S)
        again: list[Came] = []
        deadline = time.monotonic() + SOON_S
        while len(again) < len(sent) and time.monotonic() < deadline:
            for one in driver.receive(name="again"):
                driver.ack(one, name="again")
                again.append(one)
        if sorted(number_of(one) for one in again) != list(range(len(sent))):
            raise Failed(f"of what was given back {spread(again)} came")
        for one in again:
            if one.attempt != 2 or one.body != bodies[number_of(one)] or one.topic != stage.topic:
                raise Failed(f"message {one.key} of {one.topic} came as attempt {one.attempt}")


def remoting(message: Told) -> Message:
    """The same message, for a client of remoting."""
    return Message(
        message["topic"],
        message["body"],
        tags=message["tag"],
        keys=message["keys"],
        properties=message["properties"],
    )


def is_read_by_remoting(stage: Stage) -> None:
    """A client of remoting gets what was sent, and what a client of gRPC gave back."""
    stage.make_topic()
    with stage.driver() as driver:
        driver.producer(stage.topic)
        sent = [stage.message(0), stage.message(1, b"compressible " * 3000)]
        ids = driver.send(sent)
        came = own_client.consume(stage.names, stage.topic, stage.group, len(sent), SOON_S)
        for at, one in enumerate(sent):
            got = next(message for message in came if message.properties["n"] == str(at))
            check_remoting(one, got, 0)
            if got.properties["UNIQ_KEY"] != ids[at]:
                raise Failed(f"the id {ids[at]} came as {got.properties['UNIQ_KEY']}")
        # Not acknowledged by a consumer of gRPC, in another group.
        group = f"{stage.group}-again"
        driver.consumer("simple", group, stage.topic, wait_s=NOTHING_S)
        receive_all(driver, len(sent), invisible_s=10)
        driver.kill()
        again = own_client.pop(stage.names, stage.topic, group, len(sent), SOON_S)
        for at, one in enumerate(sent):
            got = next(message for message in again if message.properties["n"] == str(at))
            check_remoting(one, got, 1)


def check_remoting(sent: Told, got: ReceivedMessage, times: int) -> None:
    """Check that a client of remoting got a message as it was sent."""
    for what, was, now in (
        ("body", sent["body"], got.body),
        ("tag", sent["tag"], got.tags),
        ("keys", sorted(sent["keys"]), sorted(got.keys.split())),
        ("reconsume times", times, got.reconsume_times),
        *((name, value, got.properties.get(name)) for name, value in sent["properties"].items()),
    ):
        if was != now:
            raise Failed(f"{what} of {sent['keys'][0]} was {was!r:.80}, and came as {now!r:.80}")


# --- Failures of processes -------------------------------------------------------------------------


def takes_over(stage: Stage) -> str:
    """The messages of a consumer that was killed come to another one of its group."""
    stage.make_topic()
    sent = stage.messages(10)
    for one in sent:
        one["properties"]["hold"] = "600000"
    with stage.driver() as living:
        living.producer(stage.topic)
        with stage.driver() as dying:
            if stage.pushes:
                dying.consumer("push", stage.group, stage.topic)
                living.send(sent)
                dying.wait_for(len(sent), SOON_S)
            else:
                dying.consumer("simple", stage.group, stage.topic, wait_s=NOTHING_S)
                living.send(sent)
                receive_all(dying, len(sent), invisible_s=20)
            dying.kill()
        began = time.monotonic()
        stage.start_consumer(living)
        came = stage.all_consumed(living, len(sent), TAKEOVER_S)
        took_s = time.monotonic() - began
        if {one.attempt for one in came} != {2}:
            raise Failed(f"they came as attempts {sorted({one.attempt for one in came})}")
    return f"after {took_s:.0f} s"


class Load:
    """A producer that sends one message after the other, each until it is acknowledged, while a
    consumer of the same program gets them.

    Args:
        stage: with a topic.
        driver: with a producer, and a consumer.
    """

    def __init__(self, stage: Stage, driver: Driver) -> None:
        self._stage = stage
        self._driver = driver
        self._stopping = threading.Event()
        self._acknowledged: dict[str, float] = {}
        self._failures = 0
        self._came: list[Came] = []
        self._problem = ""
        self._threads = [threading.Thread(target=self._send)]
        if not stage.pushes:
            self._threads.append(threading.Thread(target=self._receive))
        for thread in self._threads:
            thread.start()

    def wait_until_flowing(self) -> None:
        """Wait until messages are acknowledged and come."""
        deadline = time.monotonic() + SOON_S
        while len(self._acknowledged) < 20 or len(self._all_came()) < 20:
            if self._problem or time.monotonic() > deadline:
                raise Failed(self._problem or f"nothing flows: {len(self._acknowledged)} sent")
            time.sleep(0.1)

    def end(self, within_s: float) -> str:
        """Stop to send, and wait for what was acknowledged; how long a gap was.

        Raises:
            Failed: something that was acknowledged did not come.
        """
        self._stopping.set()
        self._threads[0].join(SOON_S)
        deadline = time.monotonic() + within_s
        while missing := self._missing():
            if self._problem or time.monotonic() > deadline:
                raise Failed(
                    f"{len(missing)} of {len(self._acknowledged)} acknowledged messages did not "
                    f"come {self._problem}"
                )
            time.sleep(0.1)
        for thread in self._threads[1:]:
            thread.join(SOON_S)
        came = self._all_came()
        again = len(came) - len({one.id for one in came})
        sends = gap(list(self._acknowledged.values()))
        deliveries = gap([one.at_s for one in came])
        return (
            f"{len(self._acknowledged)} acknowledged, {self._failures} failed, {again} twice; "
            f"gaps {sends:.1f} s of sends, {deliveries:.1f} s of deliveries"
        )

    def _missing(self) -> set[str]:
        return set(self._acknowledged) - {one.id for one in self._all_came()}

    def _all_came(self) -> list[Came]:
        return self._driver.came() if self._stage.pushes else list(self._came)

    def _send(self) -> None:
        number = 0
        while not self._stopping.is_set():
            try:
                [receipt] = self._driver.receipts([self._stage.message(number)], within_s=SOON_S)
            except Failed as error:
                self._problem = str(error)
                return
            if receipt.error:
                self._failures += 1
                time.sleep(0.1)
            else:
                self._acknowledged[receipt.id] = time.time()
                number += 1
                time.sleep(0.02)

    def _receive(self) -> None:
        while not self._stopping.is_set() or self._missing():
            try:
                for one in self._driver.receive():
                    self._driver.ack(one)
                    self._came.append(one)
            except Refused:
                time.sleep(0.5)
            except Failed as error:
                self._problem = str(error)
                return


def gap(times: list[float]) -> float:
    """The longest time between two of them."""
    ordered = sorted(times)
    return max(
        (later - one for one, later in zip(ordered, ordered[1:], strict=False)), default=0.0
    )


# What a client took, and did not acknowledge, is another's after a minute.
AFTER_DEATH_S = 120


def survives_a_leader(stage: Stage) -> str:
    """The leader's process is killed under load; what was acknowledged comes."""
    stage.make_topic()
    with stage.driver() as driver:
        driver.producer(stage.topic)
        stage.start_consumer(driver)
        load = Load(stage, driver)
        load.wait_until_flowing()
        stage.place.cluster.kill_leader()
        time.sleep(15)
        return load.end(AFTER_DEATH_S)


def survives_the_end_of_a_proxy(stage: Stage) -> str:
    """One of two proxies is ended in order, and started again; then the other one."""
    return with_two_proxies(stage, lambda proxy: proxy.end())


def survives_the_death_of_a_proxy(stage: Stage) -> str:
    """One of two proxies is killed, and started again; then the other one."""
    return with_two_proxies(stage, lambda proxy: proxy.kill())


def with_two_proxies(stage: Stage, stop: Callable[[LocalProxy], object]) -> str:
    """Stop each of two proxies under load; what was acknowledged comes."""
    stage.make_topic()
    with stage.proxy() as first, stage.proxy() as second:
        with stage.driver(f"{first.address};{second.address}") as driver:
            driver.producer(stage.topic)
            stage.start_consumer(driver)
            load = Load(stage, driver)
            load.wait_until_flowing()
            stop(first)
            time.sleep(15)
            first.start()
            time.sleep(10)
            stop(second)
            time.sleep(15)
            return load.end(AFTER_DEATH_S)


# --- TLS -------------------------------------------------------------------------------------------

# Their clients believe any certificate, so that the proxy's own one does.
BELIEVERS: frozenset[GrpcClient] = frozenset({"java52", "java51", "go5"})


def speaks_tls(stage: Stage) -> str:
    """Everything over TLS: by the proxy's own certificate where the client believes any."""
    stage.make_topic()
    if stage.client in BELIEVERS:
        with stage.driver() as driver:
            flows_over_tls(stage, driver)
        return "with the proxy's own certificate"
    certificates = stage.place.folder / "certificates"
    stage.place.cluster.command("certificates", str(certificates))
    options = ("--tls-cert", certificates / "n0.pem", "--tls-key", certificates / "n0-key.pem")
    believed = {"GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": str(authority_of(certificates))}
    with stage.proxy(*map(str, options)) as proxy, stage.driver(proxy.address, believed) as driver:
        flows_over_tls(stage, driver)
    return "with an authority that is believed"


def authority_of(certificates: Path) -> Path:
    """The certificate of the authority that made the others."""
    return certificates / "authority.pem"


def flows_over_tls(stage: Stage, driver: Driver) -> None:
    """Send, receive, and push, all by TLS."""
    driver.producer(stage.topic, tls=True)
    driver.consumer("push", stage.group, stage.topic, tls=True)
    driver.consumer("simple", f"{stage.group}-simple", stage.topic, tls=True, wait_s=NOTHING_S)
    sent = [*stage.messages(20), stage.message(20, bytes(MEBIBYTE))]
    ids = driver.send(sent, at_once=True)
    driver.wait_for(len(sent), SOON_S)
    check_same(sent, driver.came(), ids)
    check_same(sent, driver.collect(len(sent), SOON_S, most=1), ids)

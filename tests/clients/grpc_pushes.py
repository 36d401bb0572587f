"""What push consumers of gRPC clients must be able to do, and what keeps an order."""

import time
from collections import Counter
from collections.abc import Collection, Iterable
from itertools import pairwise

from tests.clients.client_script import Failed
from tests.clients.driver import Came, Driver
from tests.clients.grpc_stage import (
    NOTHING_S,
    SOON_S,
    WOKEN_S,
    Stage,
    check_dead_letters,
    check_nothing,
    check_rest,
    check_same,
    expect_numbers,
    number_of,
    spread,
)

# A group's first pause is a second.
LEAST_PAUSE_S = 0.5


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
        came = driver.wait_until("repeats", lambda came: not wanted - spread(came), SOON_S * 2)
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
        if min(pauses) < LEAST_PAUSE_S:
            raise Failed(f"a message that failed came again after {min(pauses):.2f} s")
        return f"pauses of {' and '.join(f'{pause:.0f} s' for pause in pauses)}"


def pairs_of(came: Iterable[Came]) -> list[tuple[Came, Came]]:
    """Each delivery with the one after it."""
    listed = list(came)
    return list(pairwise(listed))


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


def in_order(stage: Stage) -> None:
    """The messages of a message group come in order, while they are sent."""
    flows_in_order(stage, failing=())


def in_order_after_failures(stage: Stage) -> str:
    """A message that failed comes again before those after it."""
    came = flows_in_order(stage, failing=FAILING)
    attempts = {number_of(one): one.attempt for one in came if number_of(one) in FAILING}
    return f"repeats say attempt {sorted(set(attempts.values()))}"


FAILING = (11, 42, 43)


def flows_in_order(stage: Stage, failing: Collection[int]) -> list[Came]:
    """Send and consume messages of five groups, some of which fail once; all deliveries."""
    stage.make_topic("fifo")
    stage.make_group(in_order=True)
    sent = [stage.message(number, group=f"room-{number % 5}") for number in range(100)]
    for number in failing:
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
            number for number in range(room, 100, 5) for _ in range(2 if number in failing else 1)
        ]
        if numbers != wanted:
            raise Failed(f"room-{room} came as {numbers}")
    return came


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

"""What producers and simple consumers of gRPC clients must be able to do."""

import random
import time

from tests.clients.client_script import Failed
from tests.clients.grpc_stage import (
    KIBIBYTE,
    MEBIBYTE,
    MOST_BYTES,
    NOTHING_S,
    SOON_S,
    WOKEN_S,
    Stage,
    check_nothing,
    check_same,
    expect_attempts,
    expect_numbers,
    number_of,
    receive_all,
)
from tests.clients.toolchains import GrpcClient

# Go's client sends 2 MiB at most; those in JavaScript and Rust take answers of 4 MiB at most, and
# what stands around the body counts.
LARGEST_BODY: dict[GrpcClient, int] = {
    "go5": 2 * MEBIBYTE - 4 * KIBIBYTE,
    "node5": MOST_BYTES - 4 * KIBIBYTE,
    "rust5": MOST_BYTES - 4 * KIBIBYTE,
}


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
        if receipt.code not in (None, 40402):
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

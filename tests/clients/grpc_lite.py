"""Lite topics: what those gRPC clients must be able to do that have consumers of them."""

import time
from collections.abc import Sequence
from itertools import cycle, islice

from tests.clients import own_client
from tests.clients.client_script import Failed
from tests.clients.driver import Came, Driver, Refused, Told
from tests.clients.grpc_failures import AFTER_DEATH_S, Load
from tests.clients.grpc_stage import (
    SOON_S,
    Stage,
    check_same,
    expect_attempts,
    expect_numbers,
    number_of,
)

# Clients say what they want every 30 s.
REPEATED_S = 35

# The least that a broker allows.
LIFE_MINUTES = 15
ENDED_S = (LIFE_MINUTES + 3) * 60

# 42902 LITE_SUBSCRIPTION_QUOTA_EXCEEDED, 40020 ILLEGAL_LITE_TOPIC.
TOO_MANY_CODE = 42902
BAD_NAME_CODE = 40020

# What must not come would have come by now.
SETTLED_S = 2


def lite_messages(stage: Stage, names: str, count: int, first: int = 0) -> list[Told]:
    """Messages to send to lite topics of these letters in turn, numbered from the first."""
    letters = islice(cycle(names), count)
    return [stage.message(first + at, lite=letter) for at, letter in enumerate(letters)]


def came_to(driver: Driver, kind: str = "lite") -> list[Came]:
    """All that a consumer of lite topics got until now, and a little later."""
    time.sleep(SETTLED_S)
    return driver.came(kind)


def check_order(came: Sequence[Came]) -> None:
    """Check that first deliveries of each lite topic came in the order of their sends."""
    for name in {one.lite for one in came}:
        first = dict.fromkeys(number_of(one) for one in came if one.lite == name)
        if list(first) != sorted(first):
            raise Failed(f"lite topic {name} came as {list(first)}")


def reads_lite_topics(stage: Stage) -> None:
    """Those that it subscribes to come in order, all of a later one, and none after it leaves."""
    stage.make_lite()
    with stage.driver() as driver:
        driver.producer(stage.topic)
        driver.lite_consumer("lite", stage.group, stage.topic, "a", "b")
        sent = lite_messages(stage, "abc", 30)
        ids = driver.send(sent)
        driver.wait_for(20, SOON_S, "lite")
        without_c = [one for one in sent if one["lite"] != "c"]
        check_same(without_c, came_to(driver))
        driver.ask("unsubscribe", name="lite", lite="b")
        more = lite_messages(stage, "abc", 3, first=30)
        ids += driver.send(more)
        driver.wait_for(21, SOON_S, "lite")
        check_same([*without_c, more[0]], came_to(driver))
        driver.ask("subscribe", name="lite", lite="c")
        driver.wait_for(32, SOON_S, "lite")
        wanted = [one for one in (*sent, *more) if one is not more[1]]
        wanted_ids = [key for one, key in zip((*sent, *more), ids, strict=True) if one in wanted]
        check_same(wanted, came_to(driver), wanted_ids)
        check_order(driver.came("lite"))
        driver.ask("close", name="lite")


def retries_in_order(stage: Stage) -> str:
    """A message that fails comes again before those after it in its lite topic."""
    stage.make_lite()
    sent = lite_messages(stage, "ab", 12)
    for number in (2, 5):
        sent[number]["properties"]["fail"] = "1"
    with stage.driver() as driver:
        driver.producer(stage.topic)
        driver.lite_consumer("lite", stage.group, stage.topic, "a", "b")
        driver.send(sent)
        driver.wait_for(12, SOON_S * 2, "lite")
        came = came_to(driver)
        for name, numbers in (("a", [0, 2, 2, 4, 6, 8, 10]), ("b", [1, 3, 5, 5, 7, 9, 11])):
            expect_numbers([one for one in came if one.lite == name], numbers)
    attempts = sorted({one.attempt for one in came if number_of(one) in (2, 5)})
    return f"repeats say attempt {attempts}"


def is_refused_too_many(stage: Stage) -> str:
    """A third lite topic, where two are allowed, and a bad name; those that it has go on."""
    stage.make_lite(client_quota="2")
    with stage.driver() as driver:
        driver.producer(stage.topic)
        driver.lite_consumer("lite", stage.group, stage.topic, "a", "b")
        try:
            driver.ask("subscribe", name="lite", lite="c")
        except Refused as refused:
            if refused.code not in (None, TOO_MANY_CODE):
                raise Failed(f"it was refused by {refused.code}: {refused}") from refused
            said = f"{refused}"
        else:
            raise Failed("a third lite topic was not refused")
        [receipt] = driver.receipts([stage.message(99, lite="no name")])
        if not receipt.error or receipt.code not in (None, BAD_NAME_CODE):
            raise Failed(f"a bad name: {receipt}")
        driver.ask("unsubscribe", name="lite", lite="a")
        driver.ask("subscribe", name="lite", lite="c")
        sent = lite_messages(stage, "abc", 6)
        driver.send(sent)
        driver.wait_for(4, SOON_S, "lite")
        check_same([one for one in sent if one["lite"] != "a"], came_to(driver))
    return f"{said:.80}"


def takes_over_lite_topics(stage: Stage) -> str:
    """Of an exclusive group, the newest subscriber has a lite topic, and the one before none."""
    stage.make_lite(model="Exclusive")
    with stage.driver() as first, stage.driver() as second:
        first.producer(stage.topic)
        first.lite_consumer("lite", stage.group, stage.topic, "a", "b")
        before = lite_messages(stage, "ab", 10)
        first.send(before)
        first.wait_for(10, SOON_S, "lite")
        second.lite_consumer("lite", stage.group, stage.topic, "b")
        after = lite_messages(stage, "ab", 10, first=10)
        first.send(after[:4])
        time.sleep(REPEATED_S)
        first.send(after[4:])
        first.wait_for(15, SOON_S, "lite")
        second.wait_for(5, SOON_S, "lite")
        check_same([*before, *after[::2]], came_to(first))
        check_same(after[1::2], second.came("lite"))
    return f"also {REPEATED_S} s later"


def reads_all_lite_topics(stage: Stage) -> None:
    """A group with a wildcard gets all lite topics, and needs to name none."""
    stage.make_lite(wildcard="true")
    with stage.driver() as driver:
        driver.producer(stage.topic)
        sent = lite_messages(stage, "abcdef", 24)
        driver.send(sent[:12])
        driver.lite_consumer("lite", stage.group, stage.topic)
        driver.wait_for(12, SOON_S, "lite")
        driver.send(sent[12:])
        driver.wait_for(24, SOON_S, "lite")
        check_same(sent, came_to(driver))
        check_order(driver.came("lite"))


def receives_lite_topics(stage: Stage) -> None:
    """A simple consumer gets a lite topic's messages in order, and again what it held too long."""
    stage.make_lite()
    with stage.driver() as driver:
        driver.producer(stage.topic)
        driver.send(lite_messages(stage, "abc", 9))
        driver.lite_consumer("lite_simple", stage.group, stage.topic, "a", "b")
        [held] = receive_of(driver, 1, 10)
        came: list[Came] = []
        while len(came) < 6:
            for one in receive_of(driver, 16, 30):
                driver.ack(one, name="lite_simple")
                came.append(one)
        for name, numbers in (("a", [0, 3, 6]), ("b", [1, 4, 7])):
            expect_numbers([one for one in came if one.lite == name], numbers)
        expect_attempts([held], [one for one in came if one.id == held.id], 2)
        driver.ask("unsubscribe", name="lite_simple", lite="b")
        driver.send(lite_messages(stage, "bc", 2, first=9))
        if again := driver.receive(name="lite_simple"):
            raise Failed(f"message {again[0].key} of {again[0].lite} came, which should not")


def receive_of(driver: Driver, most: int, invisible_s: int) -> list[Came]:
    """Receive until something comes."""
    deadline = time.monotonic() + SOON_S
    while not (came := driver.receive(most, invisible_s, name="lite_simple")):
        if time.monotonic() > deadline:
            raise Failed("nothing came")
    return came


LOADED = ("a", "b", "c", "d", "e")


def keeps_lite_topics_through_a_death(stage: Stage) -> str:
    """The leader's process is killed under load; what was acknowledged comes, in order."""
    stage.make_lite()
    with stage.driver() as driver:
        driver.producer(stage.topic)
        driver.lite_consumer("lite", stage.group, stage.topic, *LOADED)
        load = Load(stage, driver, *LOADED)
        load.wait_until_flowing()
        stage.place.cluster.kill_leader()
        time.sleep(15)
        told = load.end(AFTER_DEATH_S)
        check_order(driver.came("lite"))
        return told


def sees_lite_topics_end(stage: Stage) -> str:
    """A lite topic ends after its last message; the next message begins a new one."""
    stage.make_lite()
    own_client.end_lite_topics_after(stage.own, stage.topic, LIFE_MINUTES)
    with stage.driver() as driver:
        driver.producer(stage.topic)
        driver.send(lite_messages(stage, "a", 3))
    began = time.monotonic()
    while own_client.lite_topic_exists(stage.own, stage.topic, "a"):
        if time.monotonic() - began > ENDED_S:
            raise Failed(f"the lite topic had not ended after {ENDED_S} s")
        time.sleep(10)
    lived_s = time.monotonic() - began
    if lived_s < LIFE_MINUTES * 60:
        raise Failed(f"the lite topic ended after {lived_s:.0f} s")
    with stage.driver() as driver:
        driver.producer(stage.topic)
        driver.lite_consumer("lite", stage.group, stage.topic, "a")
        [again] = lite_messages(stage, "a", 1, first=3)
        driver.send([again])
        driver.wait_for(1, SOON_S, "lite")
        check_same([again], came_to(driver))
    return f"after {lived_s / 60:.1f} minutes"

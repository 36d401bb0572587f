"""Dead letters, times and transactions of gRPC clients."""

import time
from collections import Counter

from tests.clients.client_script import Failed
from tests.clients.grpc_stage import (
    NOTHING_S,
    SOON_S,
    Stage,
    check_dead_letters,
    check_nothing,
    check_rest,
    check_same,
    number_of,
    receive_all,
    spread,
)

# Half messages are checked 6 s after their arrival, and every 30 s.
CHECKED_S = 120


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

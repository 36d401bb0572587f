"""Clients of gRPC and of remoting, each reading what the other one sent."""

import time

from dledger_mq import Message, ReceivedMessage
from tests.clients import own_client
from tests.clients.client_script import Failed
from tests.clients.driver import Came, Told
from tests.clients.grpc_stage import (
    MEBIBYTE,
    NOTHING_S,
    SOON_S,
    Stage,
    check_nothing,
    check_same,
    number_of,
    receive_all,
    spread,
)


def reads_remoting(stage: Stage) -> None:
    """What a client of remoting sent, also compressed, and what one gave back before."""
    stage.make_topic()
    bodies = (b"\x00\xff" * 50, b"compressible " * 3000, bytes(MEBIBYTE))
    sent = [stage.message(number, body) for number, body in enumerate(bodies)]
    own_client.send(stage.own, [remoting(one) for one in sent])
    with stage.driver() as driver:
        driver.consumer("simple", stage.group, stage.topic, wait_s=NOTHING_S)
        check_same(sent, driver.collect(len(sent), SOON_S))
        check_nothing(driver)
        driver.ask("close", name="simple")
        # Given back by a consumer of remoting that pops, in another group. What pulling ones give
        # back goes to the group's retry topic, which they alone read.
        group = f"{stage.group}-again"
        failed = own_client.pop(stage.own, stage.topic, group, len(sent), SOON_S, is_success=False)
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
        came = own_client.consume(stage.own, stage.topic, stage.group, len(sent), SOON_S)
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
        again = own_client.pop(stage.own, stage.topic, group, len(sent), SOON_S)
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

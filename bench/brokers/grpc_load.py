"""Puts a load on a proxy with RocketMQ's Python client, and prints one line of JSON.

As Load5.java: `grpc_load.py WORK NAME=VALUE...`. Runs in a virtual environment of its own.
"""

import json
import os
import random
import struct
import sys
import threading
import time
from collections.abc import Callable
from itertools import pairwise

from rocketmq import (  # type: ignore[import-not-found,attr-defined,unused-ignore]
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
    SimpleConsumer,
)

LAST_S = 30
# RocketMQ's proxy refuses receives that wait for less.
AWAIT_S = 5
PLANNED = struct.Struct(">q")

given = dict(argument.split("=", 1) for argument in sys.argv[2:])
topic = given["topic"]
where = ClientConfiguration(given["proxy"], Credentials())
body = random.Random(7).randbytes(int(given["bytes"]))
times_ns: list[int] = []
failed: list[str] = []
done: list[int] = []
complaints: set[str] = set()


def number(name: str) -> int:
    return int(given[name])


def group() -> str:
    return f"bench_{time.monotonic_ns()}"


def complain(error: Exception) -> None:
    """Tell each kind of failure once."""
    kind = type(error).__name__
    if kind not in complaints:
        complaints.add(kind)
        print(f"{kind}: {error}".splitlines()[0], file=sys.stderr)


def started_producer() -> Producer:
    made = Producer(where, (topic,))
    made.startup()
    return made


def sends(producer: Producer, content: bytes) -> bool:
    message = Message()
    message.topic = topic
    message.body = content
    try:
        producer.send(message)
    except Exception as error:
        complain(error)
        return False
    return True


def started(count: int, work: Callable[[], None]) -> list[threading.Thread]:
    made = [threading.Thread(target=work, daemon=True) for _ in range(count)]
    for one in made:
        one.start()
    return made


def send() -> dict[str, float]:
    """Threads send again and again; counts what begins and ends in the window."""
    producer = started_producer()
    ends: list[int] = []
    begin = time.monotonic_ns() + number("warm_up_ms") * 1_000_000
    end = begin + number("seconds") * 1_000_000_000

    def work() -> None:
        now = time.monotonic_ns()
        while now < end:
            stored = sends(producer, body)
            then = time.monotonic_ns()
            if stored:
                done.append(1)
            if now >= begin and then <= end:
                if stored:
                    times_ns.append(then - now)
                    ends.append(then)
                else:
                    failed.append("send")
            now = then

    for one in started(number("threads"), work):
        one.join()
    marks = [begin, *sorted(ends), end]
    gap_ns = max(after - before for before, after in pairwise(marks))
    return {"a_second": len(times_ns) / number("seconds"), "gap_ms": gap_ns / 1e6}


def pass_on() -> dict[str, float]:
    """Some threads send so many messages, others receive and acknowledge them."""
    consumer = SimpleConsumer(where, group(), {topic: FilterExpression("*")}, AWAIT_S)
    consumer.startup()
    time.sleep(1)  # its settings may come later than it says
    consumer.receive(1, 30)  # the group begins with what comes from now on
    producer = started_producer()
    count, lock = number("count"), threading.Lock()
    left = [count]
    seen: set[str] = set()
    began = time.monotonic()
    until = began + number("timeout_s")

    def work() -> None:
        while True:
            with lock:
                if not left[0]:
                    return
                left[0] -= 1
            if not sends(producer, body):
                with lock:
                    left[0] += 1

    def receives() -> None:
        while len(seen) < count and time.monotonic() < until:
            try:
                for one in consumer.receive(32, 60):
                    consumer.ack(one)
                    seen.add(one.message_id)
            except Exception as error:
                complain(error)

    started(number("threads"), work)
    started(number("receivers"), receives)
    while len(seen) < count and time.monotonic() < until:
        time.sleep(0.005)
    took_s = time.monotonic() - began
    done.extend([1] * len(seen))
    failed.extend(["pass"] * max(0, count - len(seen)))
    return {"a_second": len(seen) / took_s}


class Listener(MessageListener):  # type: ignore[misc,unused-ignore]
    begin_ns = 1 << 62
    received = 0

    def consume(self, message: Message) -> ConsumeResult:
        now = time.monotonic_ns()
        (planned,) = PLANNED.unpack_from(message.body)
        done.append(1)
        if planned >= Listener.begin_ns:
            times_ns.append(now - planned)
        return ConsumeResult.SUCCESS


def travel() -> dict[str, float]:
    """Send at a rate; the time counts from the planned moment until the message is consumed."""
    a_second = number("rate")
    producer = started_producer()
    consumer = PushConsumer(where, group(), Listener(), {topic: FilterExpression("*")})
    consumer.startup()
    time.sleep(3)  # its first receives wait
    start = time.monotonic_ns()
    Listener.begin_ns = start + number("warm_up_ms") * 1_000_000
    end = Listener.begin_ns + number("seconds") * 1_000_000_000
    lock, planned_number, sent = threading.Lock(), [0], []

    def work() -> None:
        while True:
            with lock:
                planned = start + planned_number[0] * 1_000_000_000 // a_second
                planned_number[0] += 1
            if planned >= end:
                return
            time.sleep(max(0, planned - time.monotonic_ns()) / 1e9)
            if not sends(producer, PLANNED.pack(planned) + body[PLANNED.size :]):
                failed.append("send")
            elif planned >= Listener.begin_ns:
                sent.append(1)

    for one in started(number("threads"), work):
        one.join()
    last = time.monotonic() + LAST_S
    while len(times_ns) < len(sent) and time.monotonic() < last:
        time.sleep(0.02)
    failed.extend(["travel"] * max(0, len(sent) - len(times_ns)))
    return {}


def main() -> None:
    figures = {"send": send, "pass": pass_on, "travel": travel}[sys.argv[1]]()
    ordered = sorted(times_ns)
    for name, share in (("p50_ms", 0.5), ("p99_ms", 0.99)):
        at = max(0, -int(-len(ordered) * share // 1) - 1)
        figures[name] = ordered[at] / 1e6 if ordered else -1.0
    figures |= {"failed": len(failed), "messages": len(done)}
    print(json.dumps(figures), flush=True)
    os._exit(0)  # the client's threads would keep the process


if __name__ == "__main__":
    main()

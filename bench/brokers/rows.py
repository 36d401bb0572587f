"""The measurements of a group of brokers."""

from __future__ import annotations

import json
import resource
import socket
import ssl
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from bench.brokers.asking import Asking, make_topics
from bench.brokers.bench import Bench, Figure, Row, meter_of, middle, times
from bench.brokers.failover import outage_ms
from bench.brokers.frames import connected
from bench.brokers.group import BrokerGroup
from bench.brokers.lite_rows import LITE_ROWS
from bench.brokers.ours import protected
from bench.brokers.proxy_rows import PROXY_ROWS
from bench.brokers.puller import pull_all
from bench.brokers.sender import Senders
from bench.brokers.traveller import travel
from bench.one_run import RunFailed
from remoting.wire.codes import RequestCode
from remoting.wire.command import Command
from remoting.wire.signature import Credentials

_LEVEL_OF_TWO_HOURS = 18
_TOPIC_QUEUES = 8
_TRAVEL_QUEUES = 4
_LIGHT = "Light"
_TURNS = 8

# What protects each group that takes turns: its name, access control, TLS.
_KINDS = (
    ("plain", False, False),
    ("access control", True, False),
    ("TLS", False, True),
    ("access control and TLS", True, True),
)


def _ready(bench: Bench) -> list[Figure]:
    return [Figure("start until the first message is stored", "s", bench.group.ready_s)]


def _sends(topic: str, threads: int, batch: int, name: str) -> Callable[[Bench], list[Figure]]:
    def measure(bench: Bench) -> list[Figure]:
        options = {
            "topic": topic,
            "threads": threads,
            "batch": batch,
            "seconds": bench.measured_s,
        }
        found, cost = bench.measured(name, "send", bench.measured_s, **options)
        return [
            Figure(name, "a second", found["a_second"], more_is_better=True),
            *times(name, found),
            *cost,
        ]

    return measure


def _sending_row(key: str, topic: str, threads: int, batch: int, name: str) -> Row:
    return Row(key, name, _sends(topic, threads, batch, name), load_alone=True)


def _catch_up(bench: Bench) -> list[Figure]:
    count = bench.scale.backlog
    bench.make_topics(["Backlog"])
    bench.run("fill", 120, topic="Backlog", bytes=256, batch=100, count=count, in_flight=16)
    name = "catch-up, 256 B"
    options = {"topic": "Backlog", "count": count, "consume": 32, "timeout_s": 90}
    found, cost = bench.measured(name, "drain", 90, **options)
    return [Figure(name, "a second", found["a_second"], more_is_better=True), *cost]


def _pulls(bench: Bench) -> list[Figure]:
    count, topic = bench.scale.backlog, "Pulled"
    bench.make_topics([topic])
    bench.run("fill", 120, topic=topic, bytes=256, batch=100, count=count, in_flight=16)
    meter = meter_of(bench.group)
    took_s = pull_all(bench.group.leader_address(), topic, _TOPIC_QUEUES, count)
    name = "catch-up of a light client, 256 B"
    rate = Figure(name, "a second", count / took_s, more_is_better=True)
    return [rate, *meter.each(name, count)]


def _travel(bench: Bench) -> list[Figure]:
    rate = bench.scale.rate
    name = f"end to end at {rate:,}/s"
    options = {"topic": "Travel", "seconds": bench.measured_s, "rate": rate}
    found, cost = bench.measured(name, "travel", bench.measured_s + 20, **options)
    return [
        *times(name, found),
        *cost,
    ]


def _travel_light(bench: Bench) -> list[Figure]:
    rate, topic = bench.scale.rate, "TravelLight"
    name = f"end to end at {rate:,}/s, light clients"
    bench.make_topics([topic], _TRAVEL_QUEUES)
    meter = meter_of(bench.group)
    found = travel(bench.group.leader_address(), topic, _TRAVEL_QUEUES, rate, bench.measured_s)
    return [
        Figure(f"{name}: median", "ms", found.percentile_ms(50)),
        Figure(f"{name}: 99th percentile", "ms", found.percentile_ms(99)),
        *meter.each(name, found.messages),
    ]


def _memory(bench: Bench) -> list[Figure]:
    return [Figure("memory of a broker, the largest", "MiB", bench.group.memory_mib())]


def _failover(bench: Bench) -> list[Figure]:
    # RocketMQ's group takes ten seconds for each.
    kills = bench.scale.kills if bench.is_ours else 1
    took_ms: list[float] = []
    for _ in range(kills):
        leader = bench.group.leader()

        def kill(name: str = leader) -> None:
            bench.group.kill(name)

        took_ms.append(outage_ms(bench.group.nameserver, kill, patience_s=60.0))
        bench.group.start(leader)
        time.sleep(2.0)  # it catches up
    return [
        Figure("leader killed, our client: median", "ms", statistics.median(took_ms)),
        Figure("leader killed, our client: worst", "ms", max(took_ms)),
    ]


# A new group has users once all of its members have told which entries they read.
_USERS_S = 20.0


class _Protected(NamedTuple):
    """A running group, and how to send to it."""

    name: str
    group: BrokerGroup
    tls: ssl.SSLContext | None
    credentials: Credentials | None


def _protected(bench: Bench) -> list[Figure]:
    """Send plainly, with access control, with TLS, and with both, to a group of its own each.

    The groups take turns, so that other programs on the machine slow all of them.
    """
    with ExitStack() as stack:
        groups = []
        for name, has_access, has_tls in _KINDS:
            folder = Path(tempfile.mkdtemp(prefix="protected-", dir=bench.folder))
            brokers = protected(folder / "files", has_access=has_access, has_tls=has_tls)
            group = stack.enter_context(BrokerGroup(brokers, folder / "group"))
            make_topics(group.leader_address(), [_LIGHT], _TRAVEL_QUEUES, brokers.credentials)
            tls = _unchecked() if has_tls else None
            admin = brokers.credentials
            user = None if admin is None else _sending_user(group.leader_address(), admin)
            groups.append(_Protected(name, group, tls, user))
        return [figure for senders in (1, 64) for figure in _in_turn(groups, senders, bench)]


def _sending_user(address: str, admin: Credentials) -> Credentials:
    """Make a user with rules, as applications have: a super user needs none. Raises RunFailed."""
    user = Credentials("sender", "secret-of-the-sender")
    subject = f"User:{user.access_key}"
    made = {"username": user.access_key, "password": user.secret_key, "userType": "Normal"}
    rule = {"resource": "Topic:*", "actions": ["Pub"], "decision": "Allow"}
    rules = {"subject": subject, "policies": [{"policyType": "Custom", "entries": [rule]}]}
    give_up_at = time.monotonic() + _USERS_S
    with Asking(address, admin) as asking:
        for code, fields, body in (
            (RequestCode.AUTH_CREATE_USER, {"username": user.access_key}, made),
            (RequestCode.AUTH_UPDATE_ACL, {"subject": subject}, rules),
        ):
            while (reply := asking.ask(Command(code, fields, json.dumps(body).encode()))).code:
                if time.monotonic() > give_up_at:
                    raise RunFailed(f"{code.name} was answered with {reply.code}: {reply.remark}")
                time.sleep(0.1)
    return user


def _in_turn(groups: list[_Protected], senders: int, bench: Bench) -> list[Figure]:
    found: dict[str, list[Figure]] = {}
    for _ in range(_TURNS):
        for one in groups:
            for figure in _light_sends(one, senders, bench.measured_s / _TURNS):
                found.setdefault(figure.name, []).append(figure)
    return [middle(figures) for figures in found.values()]


def _light_sends(one: _Protected, number: int, for_s: float) -> list[Figure]:
    name = f"{number} light sender{'s'[: number > 1]} of 1 KB, {one.name}"
    with connected(one.group.leader_address(), one.tls) as connection:
        senders = Senders(
            connection, _LIGHT, _TRAVEL_QUEUES, bytes(1024), credentials=one.credentials
        )
        warm = senders.send(number, for_s=for_s / 4)
        count = max(number, int(warm.requests / warm.took_s * for_s))
        senders.prepare(count)
        meter = meter_of(one.group)
        senders.send(number, requests=count)
        return meter.rated(name, count)


def _unchecked() -> ssl.SSLContext:
    """Return what the load speaks: its own checks are not measured."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _beside(bench: Bench, what: str, name: str, make: Callable[[], None]) -> list[Figure]:
    """Send before and after `make`."""
    topic = f"Beside{what}"
    bench.make_topics([topic])
    figures = _sends(topic, 64, 1, f"64 senders before {name}")(bench)
    make()
    return figures + _sends(topic, 64, 1, f"64 senders with {name}")(bench)


def _delayed(bench: Bench) -> list[Figure]:
    count = bench.scale.delayed

    def make() -> None:
        options = {"bytes": 256, "delay_level": _LEVEL_OF_TWO_HOURS, "in_flight": 1000}
        bench.run("fill", 240, topic="Delayed", count=count, **options)

    return _beside(bench, "Delayed", f"{count:,} delayed messages", make)


def _topics(bench: Bench) -> list[Figure]:
    count = bench.scale.topics

    def make() -> None:
        bench.make_topics([f"Topic{number:05}" for number in range(count)])

    return _beside(bench, "Topics", f"{count:,} topics", make)


def _connections(bench: Bench) -> list[Figure]:
    count = bench.scale.connections
    _need_descriptors(count + 100)
    host, _, port = bench.group.leader_address().rpartition(":")
    with ExitStack() as stack:

        def make() -> None:
            for _ in range(count):
                stack.enter_context(socket.create_connection((host, int(port)), 10))

        before_mib = bench.group.leader_memory_mib()
        figures = _beside(bench, "Connections", f"{count:,} idle connections", make)
        grown = (bench.group.leader_memory_mib() - before_mib) * 1024 / count
    return [*figures, Figure(f"memory of each of {count:,} idle connections", "KiB", grown)]


def _need_descriptors(count: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < count:
        if hard != resource.RLIM_INFINITY and hard < count:
            raise RunFailed(f"this process may open {hard} files, {count} are needed: ulimit -n")
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))


ROWS = (
    Row("ready", "time to ready", _ready, needs_load=False),
    _sending_row("senders", "Senders", 64, 1, "64 senders of 1 KB"),
    _sending_row("sender", "Sender", 1, 1, "one sender of 1 KB"),
    _sending_row("batches", "Batches", 16, 32, "16 senders, batches of 32 x 1 KB"),
    Row("catch-up", "catch-up", _catch_up, load_alone=True),
    Row("pulls", "catch-up of a light client", _pulls, load_alone=True),
    Row("travel", "end to end at a rate", _travel),
    Row("travel-light", "end to end of light clients", _travel_light, needs_load=False),
    Row("memory", "memory", _memory, needs_load=False),
    Row("failover", "leader killed", _failover, needs_load=False),
    Row(
        "protected",
        "sends with access control and TLS",
        _protected,
        only_ours=True,
        needs_load=False,
    ),
    *PROXY_ROWS,
    *LITE_ROWS,
    Row("topics", "sends beside many topics", _topics, only_ours=True),
    Row("connections", "sends beside idle connections", _connections, only_ours=True),
    Row("delayed", "sends beside delayed messages", _delayed, only_ours=True),
)

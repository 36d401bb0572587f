"""The measurements of proxies by light clients of gRPC."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Final, NamedTuple

from bench.brokers import light_calls
from bench.brokers.asking import Asking, NotAnswered, route
from bench.brokers.bench import Bench, Clock, Figure, Meter, Row, meter_of, times
from bench.brokers.frames import connected
from bench.brokers.light_calls import POLL_S, Poller, keep_asking
from bench.brokers.sender import Senders
from bench.one_run import RunFailed
from bench.process_figures import children_processor_s, memory, ran_s
from proxy.receiving.held_pops import MOST_POPS_A_LINE
from remoting.wire.codes import RequestCode
from remoting.wire.command import Command

_BODY: Final = bytes(1024)
_QUEUES: Final = 8

# As many sends as a proxy of the slowest machine answers in a second, one at a time and at once.
_SENDS_A_SECOND: Final = {1: 300, 64: 1000}

# RocketMQ's brokers hold a thousand receives of a group and a topic.
_POLLS_EACH: Final = 100
_ANY_QUEUE: Final = "-1"

# Before the first receive ends; and for how long all of them must wait to be measured.
_MARGIN_S: Final = 1.0
_LEAST_QUIET_S: Final = 4.0
_LOOK_S: Final = 0.1


def _meter(bench: Bench, *others: Clock) -> Meter:
    proxy = partial(ran_s, bench.group.proxy_pid())
    return Meter(("the proxy", proxy), ("its brokers", bench.group.ran_s), *others)


def _sends(bench: Bench) -> list[Figure]:
    topic = "ProxySends"
    port = int(bench.group.proxy().rpartition(":")[2])
    bench.make_topics([topic])
    figures: list[Figure] = []
    for in_flight, a_second in _SENDS_A_SECOND.items():
        name = f"{in_flight} send{'s'[: in_flight > 1]} of 1 KB at once, light client of gRPC"
        count = int(a_second * bench.scale.measured_s)
        frames = light_calls.send_frames(topic, _BODY, count + a_second)
        with light_calls.connected(port) as client:
            light_calls.send(client, frames[:a_second], in_flight)
            meter = _meter(bench)
            light_calls.send(client, frames[a_second:], in_flight)
            figures += meter.rated(name, count)
    return figures + _plain_sends(bench, topic)


def _plain_sends(bench: Bench, topic: str) -> list[Figure]:
    """Send the same without the proxy: its brokers alone."""
    name = "64 sends of 1 KB at once, without a proxy"
    with connected(bench.group.leader_address()) as connection:
        senders = Senders(connection, topic, _QUEUES, _BODY)
        senders.send(64, for_s=1.0)
        meter = meter_of(bench.group)
        sent = senders.send(64, for_s=bench.scale.measured_s)
        return meter.rated(name, sent.requests)


def _polls(bench: Bench) -> list[Figure]:
    """Have receives wait: first all at once, then as clients that ask again at the end."""
    topic, most = "ProxyPolls", bench.scale.polls
    port = int(bench.group.proxy().rpartition(":")[2])
    bench.make_topics([topic])
    broker_name = _broker_name(bench.group.nameserver, topic)
    with ExitStack() as stack:
        pollers = [
            Poller(stack.enter_context(light_calls.connected(port)), number, topic, broker_name)
            for number in range(-(-most // _POLLS_EACH))
        ]
        figures = _begun(bench, topic, pollers)
        keep_asking(pollers, POLL_S)
        count, again = len(pollers) * _POLLS_EACH, _meter(bench)
        ended = keep_asking(pollers, bench.scale.polled_s)
        name = f"{count:,} receives of {POLL_S:g} s, each asked again"
        a_minute = 60 / bench.scale.polled_s
        return [
            *figures,
            Figure(f"{name}: ended", "a minute", ended * a_minute, more_is_better=True),
            *again.used(name, "s a minute", a_minute),
        ]


def _begun(bench: Bench, topic: str, pollers: list[Poller]) -> list[Figure]:
    """Begin all receives at once, and measure while none of them ends. Raises RunFailed."""
    count = len(pollers) * _POLLS_EACH
    proxy_kib, broker_kib = _memory_kib(bench)
    begins, began = _meter(bench), time.monotonic()
    for poller in pollers:
        poller.ask(_POLLS_EACH)
    held = _wait_until_held(bench, topic, pollers, began + POLL_S - _LEAST_QUIET_S)
    now_proxy_kib, now_broker_kib = _memory_kib(bench)
    name = "a receive that waits"
    figures = [
        *begins.used(f"{name}, its begin", "us", 1e6 / count),
        Figure(f"{name}: memory of the proxy", "KiB", (now_proxy_kib - proxy_kib) / count),
        Figure(f"{name}: memory of its broker", "KiB", (now_broker_kib - broker_kib) / count),
    ]
    quiet_s = began + POLL_S - _MARGIN_S - time.monotonic()
    if not held or quiet_s <= 0:
        return figures  # the first ones end before the last ones begin
    quiet = _meter(bench)
    time.sleep(quiet_s)
    name = f"{count:,} receives that wait, none of which ends"
    return [*figures, *quiet.used(name, "s a minute", 60 / quiet_s)]


def _memory_kib(bench: Bench) -> tuple[float, float]:
    """Return the memory of the proxy, and of the leader."""
    proxy_mib = memory(bench.group.proxy_pid()).resident
    return proxy_mib * 1024, bench.group.leader_memory_mib() * 1024


def _broker_name(nameserver: str, topic: str) -> str:
    try:
        found = route(nameserver, topic)
    except NotAnswered as error:
        raise RunFailed(str(error)) from None
    if found is None or not found.brokers:
        raise RunFailed(f"topic {topic} has no route")
    return found.brokers[0].broker_name


def _wait_until_held(bench: Bench, topic: str, pollers: list[Poller], until: float) -> bool:
    """Wait until the leader holds the pops of all receives; return if it does. Raises RunFailed."""
    questions = [
        Command(
            RequestCode.POLLING_INFO,
            {"consumerGroup": one.group, "topic": topic, "queueId": _ANY_QUEUE},
        )
        for one in pollers
    ]
    while time.monotonic() < until:
        try:
            with Asking(bench.group.leader_address()) as asking:
                replies = list(asking.ask_all(questions))
        except NotAnswered as error:
            raise RunFailed(str(error)) from None
        held = sum(int(reply.fields.get("pollingNum", "0")) for reply in replies)
        # Our proxy has a few pops wait for all receives of a group.
        if held >= len(pollers) * (MOST_POPS_A_LINE if bench.is_ours else _POLLS_EACH):
            return True
        time.sleep(_LOOK_S)
    return False


class _Client(NamedTuple):
    """How much one of RocketMQ's clients does on two processors beside a proxy and brokers.

    `passed`: messages that are sent, received and acknowledged. `rate`: of messages end to end.
    """

    language: str
    passed: int
    rate: int


# Rates that machines of two processors keep up with: at others the times are those of a queue.
_CLIENTS: Final = (_Client("Java", 5_000, 200), _Client("Python", 2_000, 100))
_SENDERS: Final = 64
_RECEIVERS: Final = 16
_WARM_UP_MS: Final = 4000
_PATIENCE_S: Final = 120


def _given(bench: Bench) -> dict[str, object]:
    """Return the options of each task of a client."""
    return {"proxy": bench.group.proxy(), "bytes": len(_BODY), "warm_up_ms": _WARM_UP_MS}


def _loaded(
    bench: Bench, client: _Client, name: str, work: str, about_s: float, **options: object
) -> tuple[dict[str, float], list[Figure]]:
    """Run a task of a client; also return the processor time for each message. Raises RunFailed."""
    load = bench.grpc_loads[client.language]
    given = _given(bench) | options
    meter = _meter(bench, ("the client", children_processor_s))
    within_s = about_s + _PATIENCE_S
    nameserver = bench.group.nameserver
    found = load.run(work, nameserver, bench.folder, within_s, **given)
    return found, meter.each(name, found["messages"])


def _by_client(client: _Client) -> Callable[[Bench], list[Figure]]:
    """Return what measures a proxy by one of RocketMQ's own clients."""

    def measure(bench: Bench) -> list[Figure]:
        figures: list[Figure] = []
        measured_s = bench.measured_s
        for threads in (1, _SENDERS):
            name = f"{client.language}: {threads} sender{'s'[: threads > 1]} of 1 KB"
            topic = f"Proxy{client.language}{threads}"
            bench.make_topics([topic])
            found, cost = _loaded(
                *(bench, client, name, "send", measured_s),
                topic=topic,
                threads=threads,
                seconds=measured_s,
            )
            figures += [
                Figure(name, "a second", found["a_second"], more_is_better=True),
                *times(name, found),
                *cost,
            ]
        return figures + _passes(bench, client) + _travels(bench, client)

    return measure


def _passes(bench: Bench, client: _Client) -> list[Figure]:
    name = f"{client.language}: sent, received, acknowledged"
    topic = f"Proxy{client.language}Passes"
    bench.make_topics([topic])
    found, cost = _loaded(
        *(bench, client, name, "pass", _PATIENCE_S),
        topic=topic,
        threads=_RECEIVERS,
        receivers=_RECEIVERS,
        count=client.passed,
        timeout_s=_PATIENCE_S,
    )
    return [Figure(name, "a second", found["a_second"], more_is_better=True), *cost]


def _travels(bench: Bench, client: _Client) -> list[Figure]:
    name = f"{client.language}: end to end at {client.rate}/s"
    topic = f"Proxy{client.language}Travels"
    bench.make_topics([topic])
    found, cost = _loaded(
        *(bench, client, name, "travel", bench.measured_s),
        topic=topic,
        threads=_RECEIVERS,
        rate=client.rate,
        seconds=bench.measured_s,
    )
    return [
        *times(name, found),
        *cost,
    ]


# From the start of the client until the leader is killed; and for how long it sends. RocketMQ's
# group takes ten seconds to elect another.
_KILLED_AFTER_S: Final = 12.0
_SENT_S: Final = 40


def _failover(bench: Bench) -> list[Figure]:
    """Kill the leader under load; tell the longest time without an answer to any of 16 senders."""
    topic, client = "ProxyFailover", _CLIENTS[0]
    bench.make_topics([topic])
    leader = bench.group.leader()
    killer = threading.Timer(_KILLED_AFTER_S, bench.group.kill, [leader])
    load = bench.grpc_loads[client.language]
    given = _given(bench) | {"topic": topic, "threads": _RECEIVERS, "seconds": _SENT_S}
    nameserver, within_s = bench.group.nameserver, _SENT_S + _PATIENCE_S
    killer.start()
    try:
        found = load.run_anyhow("send", nameserver, bench.folder, within_s, **given)
    finally:
        killer.cancel()
        killer.join()
        bench.group.start(leader)
    return [
        Figure("leader killed, Java client of gRPC", "ms", found["gap_ms"]),
        Figure("leader killed, Java client of gRPC: failed sends", "sends", found["failed"]),
    ]


def _row(
    key: str, what: str, measure: Callable[[Bench], list[Figure]], *, needs_grpc: bool = True
) -> Row:
    return Row(key, what, measure, needs_load=False, by_proxy=True, needs_grpc=needs_grpc)


PROXY_ROWS = (
    _row("proxy-sends", "sends by way of a proxy", _sends, needs_grpc=False),
    _row("proxy-polls", "receives that wait at a proxy", _polls, needs_grpc=False),
    *(
        _row(f"proxy-{one.language.lower()}", f"a proxy by {one.language}", _by_client(one))
        for one in _CLIENTS
    ),
    _row("proxy-failover", "leader killed behind a proxy", _failover),
)

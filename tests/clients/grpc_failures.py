"""Clients of gRPC while processes are killed, and with TLS."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

from tests.clients.client_script import Failed
from tests.clients.driver import Came, Driver, Refused
from tests.clients.grpc_stage import MEBIBYTE, NOTHING_S, SOON_S, Stage, check_same, receive_all
from tests.clients.local_proxy import LocalProxy
from tests.clients.toolchains import GrpcClient

# A proxy hears nothing of a dead client for some time, and messages stay with it for 60 s more.
TAKEOVER_S = 200


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
        lite: the lite topics that messages go to, in turn, if they do.
    """

    def __init__(self, stage: Stage, driver: Driver, *lite: str) -> None:
        self._stage = stage
        self._driver = driver
        self._lite = lite
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
        """Stop to send, and wait for what was acknowledged; how long gaps and waits were.

        Raises:
            Failed: something that was acknowledged did not come.
        """
        stopped_s = time.time()
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
        deliveries = gap([one.at_s for one in came if one.at_s < stopped_s])
        first = {one.id: one.at_s for one in reversed(came)}
        longest = max(first[key] - at_s for key, at_s in self._acknowledged.items())
        return (
            f"{len(self._acknowledged)} acknowledged, {self._failures} failed, {again} twice; "
            f"gaps {sends:.1f} s of sends, {deliveries:.1f} s of deliveries, one came after "
            f"{longest:.0f} s"
        )

    def _missing(self) -> set[str]:
        return set(self._acknowledged) - {one.id for one in self._all_came()}

    def _all_came(self) -> list[Came]:
        if not self._stage.pushes:
            return list(self._came)
        return self._driver.came("lite" if self._lite else "push")

    def _send(self) -> None:
        number = 0
        while not self._stopping.is_set():
            message = self._stage.message(number)
            if self._lite:
                message["lite"] = self._lite[number % len(self._lite)]
            try:
                [receipt] = self._driver.receipts([message], within_s=SOON_S)
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
                    self._came.append(one)
                    with suppress(Refused):  # it comes again
                        self._driver.ack(one)
            except Refused:
                time.sleep(0.5)
            except Failed as error:
                self._problem = str(error)
                return


def gap(times: list[float]) -> float:
    """The longest time between two of them."""
    ordered = sorted(times)
    return max((later - one for one, later in pairwise(ordered)), default=0.0)


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
    return with_proxies(stage, lambda proxy: proxy.end())


def survives_the_death_of_a_proxy(stage: Stage) -> str:
    """One of two proxies is killed, and started again; then the other one."""
    return with_proxies(stage, lambda proxy: proxy.kill())


# Their library takes several addresses for one name, which does not exist.
ONE_ADDRESS: frozenset[GrpcClient] = frozenset({"node5"})
# Their library finds several addresses, and compares a certificate with all of them as one name.
ONE_ADDRESS_BY_TLS: frozenset[GrpcClient] = frozenset({"python5", "python51"})


def with_proxies(stage: Stage, stop: Callable[[LocalProxy], object]) -> str:
    """Stop proxies under load: one that comes back at once, or each of two."""
    one_by_tls = stage.client in ONE_ADDRESS_BY_TLS and stage.place.proxy.reach.tls
    if stage.client in ONE_ADDRESS or one_by_tls:
        return f"one address; {with_a_proxy(stage, stop)}"
    return with_two_proxies(stage, stop)


def with_a_proxy(stage: Stage, stop: Callable[[LocalProxy], object]) -> str:
    """Stop the only proxy under load, and start it again; what was acknowledged comes."""
    stage.make_topic()
    with stage.proxy() as proxy, stage.driver(proxy.address) as driver:
        driver.producer(stage.topic)
        stage.start_consumer(driver)
        load = Load(stage, driver)
        load.wait_until_flowing()
        stop(proxy)
        proxy.start()
        time.sleep(15)
        return load.end(AFTER_DEATH_S)


def with_two_proxies(stage: Stage, stop: Callable[[LocalProxy], object]) -> str:
    """Stop each of two proxies under load; what was acknowledged comes."""
    stage.make_topic()
    with (
        stage.proxy() as first,
        stage.proxy() as second,
        stage.driver(f"{first.address};{second.address}") as driver,
    ):
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

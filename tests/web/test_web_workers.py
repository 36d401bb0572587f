"""The documented celery worker and the documented service, with leaders killed and at SIGTERM."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import dledger_mq
import dledger_mq.blocking
from tests.web.order_services import OrderServices
from tests.web.running_server import (
    MAX_S,
    PROGRAM_PATH,
    PROGRAMS,
    WEB_PYTHON,
    RunningServer,
    running_server,
)

pytestmark = pytest.mark.long

ORDERS = 60
_CELERY = ["celery", "-A", "celery_orders", "worker", "--concurrency", "2", "-l", "warning"]
# Celery ends its processes when their tasks have ended, and looks for new ones once a second.
END_MAX_S = 20


def wait_until(is_so: Callable[[], bool], server: RunningServer) -> None:
    """Wait for something outside of this process."""
    limit = time.monotonic() + 2 * MAX_S
    while not is_so():
        assert server.exit_code is None, f"it ended:\n{server.text}"
        assert time.monotonic() < limit, server.text
        time.sleep(0.05)


def place_orders(folder: Path, services: OrderServices) -> None:
    """Give celery its tasks."""
    program = "from celery_orders import place\n"
    program += f"for number in range({ORDERS}): place.delay(f'celery-{{number}}')"
    subprocess.run(
        [WEB_PYTHON, "-c", program],
        cwd=folder,
        env={**os.environ, **services.environment, "PYTHONPATH": PROGRAM_PATH},
        check=True,
    )


def succeeded(folder: Path) -> set[str]:
    """The ids of the messages that tasks have sent."""
    found = set()
    for path in (folder / "celery-data" / "results").iterdir():
        try:
            result = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            continue  # it is being written
        assert result["status"] in {"SUCCESS", "RETRY"}, result
        if result["status"] == "SUCCESS":
            found.add(result["result"])
    return found


def test_each_task_of_celery_has_sent_its_order_when_it_has_succeeded(
    services: OrderServices, tmp_path: Path
) -> None:
    place_orders(tmp_path, services)
    took_s = []
    for most in (2 * ORDERS // 3, ORDERS):  # ended by SIGTERM in between, and started again
        with running_server(_CELERY, tmp_path, services.environment) as worker:
            wait_until(lambda: len(succeeded(tmp_path)) >= ORDERS // 6, worker)
            with services.leaders_killed():
                wait_until(lambda least=most: len(succeeded(tmp_path)) >= least, worker)  # type: ignore[misc]
            worker.signal(signal.SIGTERM)
            took_s.append(worker.wait(END_MAX_S))
            assert worker.exit_code == 0
            assert "Traceback" not in worker.text
    print(f"\ncelery: {ORDERS} tasks, ended in {max(took_s):.1f} s")
    stored = [body for body in services.messages() if body.startswith("celery-")]
    assert set(stored) == {f"celery-{number}" for number in range(ORDERS)}


def test_a_producer_that_is_opened_before_celery_forks_is_refused_by_name(
    services: OrderServices, tmp_path: Path
) -> None:
    early = """
import celery_orders
from celery.signals import worker_process_init
from celery_orders import app

worker_process_init.disconnect(celery_orders.open_clients)
celery_orders.open_clients()
"""
    (tmp_path / "early_orders.py").write_text(early, encoding="utf-8")
    place_orders(tmp_path, services)
    results = tmp_path / "celery-data" / "results"
    arguments = ["celery", "-A", "early_orders", *_CELERY[3:]]
    with running_server(arguments, tmp_path, services.environment) as worker:
        worker.until("CallMisplaced: .* opened before this process was forked", ORDERS)
        worker.signal(signal.SIGTERM)
        worker.wait(END_MAX_S)
    failed = [json.loads(path.read_text(encoding="utf-8")) for path in results.iterdir()]
    assert {each["result"]["exc_type"] for each in failed} == {"CallMisplaced"}


def test_the_service_copies_each_order_while_leaders_die_and_ends_in_order(
    services: OrderServices, tmp_path: Path
) -> None:
    orders = [f"service-{number}" for number in range(3 * ORDERS)]
    producer = dledger_mq.Producer("tests", nameservers=services.environment["NAMESRV_ADDR"])

    def copied() -> list[str]:
        return [body for body in services.entries() if " service-" in body]

    def send(bodies: list[str]) -> None:
        messages = [dledger_mq.Message("Orders", body.encode()) for body in bodies]
        opened.send_many(messages, timeout_s=20)

    with dledger_mq.blocking.open_producer(producer) as opened:
        for part in range(3):  # ended by SIGTERM in between, and started again
            arguments = [str(PROGRAMS / "service_orders.py")]
            with running_server(arguments, tmp_path, services.environment, is_file=True) as service:
                service.until("copies orders")
                send(orders[part::3])
                if part == 1:
                    with services.leaders_killed():
                        wait_until(lambda: len(copied()) > ORDERS, service)
                if part == 2:
                    wait_until(lambda: len({b.split()[1] for b in copied()}) == 3 * ORDERS, service)
                service.signal(signal.SIGTERM)
                took_s = service.wait(END_MAX_S)
                assert service.exit_code == 0
                assert "has ended in order" in service.text
    entries = copied()
    print(f"\nservice: {len(set(entries))} orders, {len(entries)} entries, ended in {took_s:.1f} s")
    assert {entry.split()[1] for entry in entries} == set(orders)

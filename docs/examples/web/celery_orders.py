"""Sends orders as messages, from tasks of celery.

    celery -A celery_orders worker --concurrency 2

Celery forks its worker processes: each opens its own producer when it begins.
"""

import os
from contextlib import ExitStack

from celery import Celery
from celery.signals import worker_process_init, worker_process_shutdown

import dledger_mq
import dledger_mq.blocking

NAMESERVERS = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")

app = Celery("orders")
app.config_from_object("celeryconfig")
_clients = ExitStack()


class Opened:
    """What the tasks of this process use."""

    producer: dledger_mq.blocking.BlockingProducer


@worker_process_init.connect
def open_clients(**_given: object) -> None:
    """In a worker process, before its first task."""
    producer = dledger_mq.Producer("tasks", nameservers=NAMESERVERS)
    Opened.producer = _clients.enter_context(dledger_mq.blocking.open_producer(producer))


@worker_process_shutdown.connect
def close_clients(**_given: object) -> None:
    """In a worker process, after its last task."""
    _clients.close()


@app.task(
    autoretry_for=(dledger_mq.Rejected,),  # certainly not stored: sending it again is safe
    dont_autoretry_for=(dledger_mq.InvalidMessage,),
    retry_backoff=True,
    max_retries=8,
    acks_late=True,
)
def place(order: str) -> str:
    """Send one order. OutcomeUnknown is not tried again: it fails the task, for an operator."""
    message = dledger_mq.Message("Orders", order.encode(), keys=order)
    return Opened.producer.send(message, timeout_s=10).message_id

"""Takes orders over HTTP with Flask: a message or a log entry each.

    gunicorn -c gunicorn_orders.py flask_orders:app

The handlers run in threads, or one at a time, and use the blocking form. What `open_clients` opens
is for one process: gunicorn_orders.py calls it in each worker.
"""

import os
from contextlib import ExitStack

from flask import Flask, Response, jsonify, request

import dledger
import dledger.blocking
import dledger_mq
import dledger_mq.blocking

PEERS = os.environ.get("ORDERS_LOG", "127.0.0.1:20911")
NAMESERVERS = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")
TIMEOUT_S = 5.0  # an HTTP client waits for longer

app = Flask(__name__)
_clients = ExitStack()


def open_clients() -> None:
    """Open what the handlers of this process use."""
    log = dledger.blocking.connect(PEERS, group="orders", timeout_s=TIMEOUT_S)
    app.extensions["log"] = _clients.enter_context(log)
    producer = dledger_mq.Producer("web", nameservers=NAMESERVERS)
    app.extensions["producer"] = _clients.enter_context(dledger_mq.blocking.open_producer(producer))


def close_clients() -> None:
    """Close it: this waits for what is in flight."""
    _clients.close()


@app.post("/messages")
def send() -> tuple[Response, int]:
    """Send the body as a message."""
    message = dledger_mq.Message("Orders", request.get_data())
    sent = app.extensions["producer"].send(message, timeout_s=TIMEOUT_S)
    return jsonify(message_id=sent.message_id), 201


@app.post("/entries")
def append() -> tuple[Response, int]:
    """Append the body to the log."""
    appended = app.extensions["log"].append(request.get_data())
    return jsonify(index=appended.index), 201


@app.errorhandler(dledger.DLedgerError)
@app.errorhandler(dledger_mq.MessagingError)
def failed(error: Exception) -> tuple[Response, int, dict[str, str]]:
    """Say whether the order may have been taken."""
    match error:
        case dledger_mq.InvalidMessage() | dledger.EntryTooLarge():
            status, outcome = 400, "refused: change it"
        case dledger_mq.MessagingError(retry_safe=True) | dledger.DLedgerError(retry_safe=True):
            status, outcome = 503, "not taken: try again"
        case _:
            status, outcome = 504, "unknown: it may have been taken"
    answer = jsonify(outcome=outcome, error=str(error))
    return answer, status, {"Retry-After": "1"} if status == 503 else {}

"""Takes orders over HTTP with Django: a message or a log entry each.

    gunicorn -c gunicorn_orders.py django_orders:application

A project of one file. gunicorn_orders.py names this module instead of flask_orders.
"""

import os
from contextlib import ExitStack

import django
from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, JsonResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt

import dledger
import dledger.blocking
import dledger_mq
import dledger_mq.blocking

PEERS = os.environ.get("ORDERS_LOG", "127.0.0.1:20911")
NAMESERVERS = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")
TIMEOUT_S = 5.0  # an HTTP client waits for longer

settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"], MIDDLEWARE=[f"{__name__}.Outcomes"])
django.setup()
_clients = ExitStack()


class Opened:
    """What the views of this process use."""

    log: dledger.blocking.BlockingLog
    producer: dledger_mq.blocking.BlockingProducer


def open_clients() -> None:
    """Open it, in each worker."""
    log = dledger.blocking.connect(PEERS, group="orders", timeout_s=TIMEOUT_S)
    Opened.log = _clients.enter_context(log)
    producer = dledger_mq.Producer("web", nameservers=NAMESERVERS)
    Opened.producer = _clients.enter_context(dledger_mq.blocking.open_producer(producer))


def close_clients() -> None:
    """Close it: this waits for what is in flight."""
    _clients.close()


@csrf_exempt
def send(request: HttpRequest) -> JsonResponse:
    """Send the body as a message."""
    message = dledger_mq.Message("Orders", request.body)
    sent = Opened.producer.send(message, timeout_s=TIMEOUT_S)
    return JsonResponse({"message_id": sent.message_id}, status=201)


@csrf_exempt
def append(request: HttpRequest) -> JsonResponse:
    """Append the body to the log."""
    return JsonResponse({"index": Opened.log.append(request.body).index}, status=201)


urlpatterns = [path("messages", send), path("entries", append)]


class Outcomes:
    """A middleware that says whether the order of a view that failed may have been taken."""

    def __init__(self, get_response: object) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> object:
        """Pass the request on."""
        assert callable(self._get_response)
        return self._get_response(request)

    def process_exception(self, _request: HttpRequest, error: Exception) -> JsonResponse | None:
        """Answer for the errors of both packages."""
        match error:
            case dledger_mq.InvalidMessage() | dledger.EntryTooLarge():
                status, outcome = 400, "refused: change it"
            case dledger_mq.MessagingError(retry_safe=True) | dledger.DLedgerError(retry_safe=True):
                status, outcome = 503, "not taken: try again"
            case dledger_mq.MessagingError() | dledger.DLedgerError():
                status, outcome = 504, "unknown: it may have been taken"
            case _:
                return None
        return JsonResponse({"outcome": outcome, "error": str(error)}, status=status)


application = get_wsgi_application()

"""Takes orders over HTTP with FastAPI: a message or a log entry each.

    uvicorn fastapi_orders:app --workers 2 --timeout-graceful-shutdown 10

The handlers run in the loop of asyncio, and use the asyncio form.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

import dledger
import dledger.for_asyncio
import dledger_mq
import dledger_mq.for_asyncio

PEERS = os.environ.get("ORDERS_LOG", "127.0.0.1:20911")
NAMESERVERS = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")
TIMEOUT_S = 5.0  # an HTTP client waits for longer


@asynccontextmanager
async def lifespan(_app: FastAPI) -> AsyncIterator[dict[str, object]]:
    """Open the clients of a worker process, in the loop that serves, and close them at its end."""
    producer = dledger_mq.Producer("web", nameservers=NAMESERVERS)
    async with (
        dledger.for_asyncio.connect(PEERS, group="orders", timeout_s=TIMEOUT_S) as log,
        dledger_mq.for_asyncio.open_producer(producer) as opened,
    ):
        yield {"log": log, "producer": opened}


app = FastAPI(lifespan=lifespan)


@app.post("/messages", status_code=201)
async def send(request: Request) -> dict[str, str]:
    """Send the body as a message."""
    message = dledger_mq.Message("Orders", await request.body())
    sent = await request.state.producer.send(message, timeout_s=TIMEOUT_S)
    return {"message_id": sent.message_id}


@app.post("/entries", status_code=201)
async def append(request: Request) -> dict[str, int]:
    """Append the body to the log."""
    appended = await request.state.log.append(await request.body())
    return {"index": appended.index}


@app.exception_handler(dledger.DLedgerError)
@app.exception_handler(dledger_mq.MessagingError)
async def failed(_request: Request, error: Exception) -> JSONResponse:
    """Say whether the order may have been taken."""
    match error:
        case dledger_mq.InvalidMessage() | dledger.EntryTooLarge():
            status, outcome = 400, "refused: change it"
        case dledger_mq.MessagingError(retry_safe=True) | dledger.DLedgerError(retry_safe=True):
            status, outcome = 503, "not taken: try again"
        case _:
            status, outcome = 504, "unknown: it may have been taken"
    answer = {"outcome": outcome, "error": str(error)}
    return JSONResponse(answer, status, {"Retry-After": "1"} if status == 503 else None)

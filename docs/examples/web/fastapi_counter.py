"""Counts visits in three web servers, each of which is a member of the group that keeps the number.

    MEMBER=n0 uvicorn fastapi_counter:app --port 8000    (and n1, n2: each with a port of its own)

Any server takes any request. A member has one process, so `--workers` stays 1.
"""

import os
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

import dledger
import dledger.for_asyncio

MEMBER = os.environ.get("MEMBER", "n0")
FIRST_PORT = int(os.environ.get("COUNTER_PORT", "21341"))
PEERS = {f"n{i}": f"127.0.0.1:{FIRST_PORT + i}" for i in range(3)}


class Visits:
    """The number; the result of an entry is the number behind it."""

    def __init__(self) -> None:
        self.count = 0

    def apply(self, entries: Sequence[dledger.Entry]) -> Sequence[object]:
        """Count entries."""
        first = self.count + 1
        self.count += len(entries)
        return range(first, self.count + 1)


@asynccontextmanager
async def lifespan(_app: FastAPI) -> AsyncIterator[dict[str, object]]:
    """Run the member for as long as the server."""
    visits = Visits()
    config = dledger.NodeConfig(
        group="visits", node_id=MEMBER, peers=PEERS, data_dir=Path("visits-data")
    )
    async with (
        dledger.for_asyncio.open_node(config, dledger.WithSessions(visits)) as node,
        node.session() as session,  # each visit counts once, whichever member leads
    ):
        yield {"visits": visits, "node": node, "session": session}


app = FastAPI(lifespan=lifespan)


@app.post("/visits", status_code=201)
async def visit(request: Request) -> dict[str, object]:
    """Count a visit."""
    return {"count": (await request.state.session.append(b"", timeout_s=20)).result}


@app.get("/visits")
async def count(request: Request) -> dict[str, int]:
    """Tell the number, as new as any visit that was acknowledged before."""
    visits: Visits = request.state.visits
    return {"count": await request.state.node.read(lambda: visits.count)}


@app.exception_handler(dledger.DLedgerError)
async def failed(_request: Request, error: dledger.DLedgerError) -> JSONResponse:
    """Say whether the visit may have been counted."""
    if isinstance(error, dledger.Fatal):  # the member has ended: let the server end, too
        os.kill(os.getpid(), signal.SIGTERM)
    return JSONResponse({"error": str(error)}, 503 if error.retry_safe else 504)

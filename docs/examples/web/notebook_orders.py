"""Sends orders and reads them back, in a notebook.

    jupytext --to notebook notebook_orders.py

Editors that know cells run it as it is. A notebook has a running loop of asyncio, so its cells may
await; `python notebook_orders.py` cannot run it.
"""

# %%
import os
from contextlib import AsyncExitStack

import dledger.for_asyncio
import dledger_mq
import dledger_mq.for_asyncio

PEERS = os.environ.get("ORDERS_LOG", "127.0.0.1:20911")
NAMESERVERS = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")

# %% What stays open from cell to cell
clients = AsyncExitStack()
log = await clients.enter_async_context(dledger.for_asyncio.connect(PEERS, group="orders"))
producer = await clients.enter_async_context(
    dledger_mq.for_asyncio.open_producer(dledger_mq.Producer("notebook", nameservers=NAMESERVERS))
)

# %% Messages
sent = await producer.send_many([dledger_mq.Message("Orders", b"tea %d" % n) for n in range(100)])
print(len({each.message_id for each in sent}), "messages")

# %% Entries
appended = await log.append_many([b"milk", b"sugar"])
bodies = []
async for entry in log.tail(appended[0].index):
    bodies.append(entry.body.decode())
    if entry.index == appended[-1].index:
        break
print(bodies)

# %% At the end
await clients.aclose()

"""Asks the tables of a small log: who sent what, who lags, what a killed leader cost.

    python log_notebook.py

Editors that know cells (VS Code, PyCharm, Spyder) run it cell by cell, and `jupytext --to notebook`
makes a notebook of it. It needs `pip install 'dledger[spark]'`; there is no Java in it.
"""

# %%
import subprocess
import sys
import time
from pathlib import Path

from pandas import DataFrame

from dledger_mq import ConsumeFrom, Message, Producer, PushConsumer, blocking
from dledger_mq.testing import blocking_cluster
from dledger_spark.tables.catalog import catalog
from dledger_spark.tables.duckdb_engine import duckdb_engine
from dledger_spark.tables.table_home import TableHome


# %%
def dledger_spark(*words: str) -> str:
    """Type a command, as `!dledger-spark` does in a notebook."""
    command = [sys.executable, "-m", "dledger_spark", *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def rows(sql: str) -> DataFrame:
    """The rows of a query over the tables."""
    with duckdb_engine(catalog(TableHome("tables"))) as engine:
        return engine.query(sql).to_pandas()


def ask(question: str, sql: str) -> None:
    """Print the rows of a query; a notebook shows `rows(sql)` by itself."""
    print(f"{question}\n{rows(sql).to_string(index=False)}\n")


# %% [markdown]
# A log to ask: three brokers take 300 orders, and the leader is killed after the first 200. A
# consumer group reads all of them and leaves; then 40 more orders come. The brokers still run while
# their log is read.


# %%
def orders(first: int, stop: int) -> list[Message]:
    """Orders of these numbers. Every other one is of the same customer."""
    return [
        Message("Orders", b"order %d" % n, keys="anna" if n % 2 else f"customer-{n}")
        for n in range(first, stop)
    ]


with blocking_cluster(directory=Path("brokers").absolute()) as group:
    with blocking.open_producer(Producer("shop", nameservers=group.nameservers)) as producer:
        producer.send_many(orders(0, 200), timeout_s=30)
        group.kill(group.leader())
        producer.send_many(orders(200, 300), timeout_s=30)
        billing = PushConsumer(
            "billing",
            "Orders",
            nameservers=group.nameservers,
            consume_from=ConsumeFrom.FIRST,
        )
        with blocking.open_push_consumer(billing) as messages:
            for number, _order in enumerate(messages, 1):
                if number == 300:
                    messages.acknowledge()
                    break
        *_others, last = producer.send_many(orders(300, 340), timeout_s=30)

    # The tables hold what the brokers have written down as committed, which they do every few
    # seconds. A command that is repeated adds what is new.
    is_there = f"select 1 from messages where unique_key = '{last.message_id}'"
    for _ in range(20):
        dledger_spark("tables", "--path", "brokers", "--out", "tables")
        if len(rows(is_there)):
            break
        time.sleep(3)

# %% [markdown]
# A page of what an operator looks at first: open it in a browser.

# %%
dledger_spark("report", "--tables", "tables", "--out", "report.html")

# %%
ask(
    "What came in?",
    "select topic, sum(messages)::int as messages, count(distinct queue) as queues "
    "from traffic where topic = 'Orders' group by topic",
)

# %%
ask(
    "Which customers order most?",
    "select key, sum(messages)::int as messages from hot_keys "
    "group by key order by messages desc, key limit 3",
)

# %%
ask(
    "What has billing not consumed?",
    "select queue, arg_max(lag_messages, minute) as lag_messages from consumer_lag "
    "where consumer_group = 'billing' and topic = 'Orders' group by queue order by queue",
)

# %%
ask(
    "What did the killed leader cost?",
    "select term, messages, gap_ms from elections where messages > 0 order by term",
)

# %%
ask(
    "Where is the last order?",
    f"select topic, queue, t.offset, event from trace t where unique_key = '{last.message_id}'",
)

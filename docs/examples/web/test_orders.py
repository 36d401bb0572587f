"""Tests of code that runs on asyncio, with a cluster of real brokers.

    pytest test_orders.py -n 2

It needs pytest-asyncio. Each process of pytest-xdist starts a cluster of its own.
"""

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

import dledger_mq
from dledger_mq.for_asyncio import AsyncioProducer, open_producer
from dledger_mq.testing import BlockingCluster, blocking_cluster


@pytest.fixture(scope="session")
def brokers() -> Iterator[BlockingCluster]:
    """One cluster for all tests of a process."""
    with blocking_cluster() as cluster:
        yield cluster


@pytest_asyncio.fixture
async def producer(brokers: BlockingCluster) -> AsyncIterator[AsyncioProducer]:
    """A producer for each test."""
    made = dledger_mq.Producer("tests", nameservers=brokers.nameservers)
    async with open_producer(made) as opened:
        yield opened


@pytest.mark.asyncio
async def test_an_order_is_stored(producer: AsyncioProducer) -> None:
    sent = await producer.send(dledger_mq.Message("Orders", b"tea"), timeout_s=10)
    assert sent.message_id


@pytest.mark.asyncio
async def test_an_order_survives_the_leader(
    brokers: BlockingCluster, producer: AsyncioProducer
) -> None:
    killed = brokers.kill()
    sent = await producer.send(dledger_mq.Message("Orders", b"milk"), timeout_s=10)
    assert sent.message_id
    brokers.restart(killed)


@pytest.mark.asyncio
@pytest.mark.parametrize("body", ["", "text"])
async def test_a_text_is_refused(producer: AsyncioProducer, body: str) -> None:
    with pytest.raises(dledger_mq.InvalidMessage):
        await producer.send(dledger_mq.Message("Orders", body))  # type: ignore[arg-type]

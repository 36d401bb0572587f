"""A broker that joins a group which runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from dledger import AddVoter, Remove
from dledger.free_ports import free_addresses, free_ports
from remoting.net.address import Address
from remoting.wire.codes import ResponseCode
from tests.broker.one_broker import until
from tests.broker.three_brokers import group_of_three


async def test_a_broker_joins_a_group_gets_its_messages_and_may_lead_it(tmp_path: Path) -> None:
    async with group_of_three(tmp_path) as group:
        leader, client = await group.leader()
        for body in (b"1", b"2"):
            assert (await client.send("orders", body)).code == ResponseCode.SUCCESS
        (address,), (port,) = free_addresses(1), free_ports(1)
        config = group.configs[leader]
        group.configs["n3"] = replace(
            config,
            node_id="n3",
            peers={"n3": address},
            joining=True,
            listen=Address("127.0.0.1", port),
            directory=tmp_path / "n3",
        )
        await group.start("n3")
        await group.brokers[leader].node.change([AddVoter("n3", address)])
        assert await group.brokers[leader].node.transfer_leadership("n3") == "n3"

        async def leads() -> bool:
            return group.brokers["n3"].requests.led_term is not None

        await until(leads)
        _, client = await group.leader()
        assert (await client.send("orders", b"3")).code == ResponseCode.SUCCESS
        assert [record.body for record in await client.messages("orders")] == [b"1", b"2", b"3"]
        numbered = await group.brokers["n3"].node.change([Remove(leader)])
        assert sorted(numbered.configuration.voters) == sorted(group.configs.keys() - {leader})

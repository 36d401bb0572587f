"""Each way to open a client wrongly is told in one line, and harms nothing that is open."""

from collections.abc import Awaitable, Callable, Sequence

import pytest
import trio

from dledger_mq import (
    Admin,
    Client,
    ClientClosed,
    GroupInUse,
    InvalidClientId,
    InvalidNameServers,
    Message,
    OpenedTwice,
    Producer,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
)
from dledger_mq.connection.this_process import new_identity
from remoting.message.message_id import unique_message_key
from tests.dledger_mq.scripted_cluster import ScriptedBroker, scripted

# Nothing listens there; nothing is sent to it before the first question.
NOWHERE = "127.0.0.1:1"

User = Admin | Client | Producer | PullConsumer | PushConsumer


async def listen(messages: Sequence[ReceivedMessage]) -> None:
    pass


def users(nameservers: str | Sequence[str] = (), client: Client | None = None) -> list[User]:
    """One of each kind that has a client of its own, or shares one."""
    return [
        Admin(nameservers=nameservers, client=client),
        Producer("g", nameservers=nameservers, client=client),
        PullConsumer("g", nameservers=nameservers, client=client),
        PushConsumer("g", "T", listen, nameservers=nameservers, client=client),
    ]


KINDS = range(4)
NAMES = ["admin", "producer", "pull", "push"]


@pytest.mark.parametrize("kind", KINDS, ids=NAMES)
async def test_a_shared_client_that_is_not_open_is_told(kind: int) -> None:
    client = Client([NOWHERE])
    user = users(client=client)[kind]
    with pytest.raises(ClientClosed, match="the client is not open: use it inside its `async with"):
        async with user:
            pass
    async with client:
        pass
    with pytest.raises(ClientClosed, match="the client is not open"):
        async with users(client=client)[kind]:
            pass


@pytest.mark.parametrize("kind", [*KINDS, 4], ids=[*NAMES, "client"])
async def test_a_second_block_is_refused_and_the_first_goes_on(kind: int) -> None:
    user = [*users([NOWHERE]), Client([NOWHERE])][kind]
    async with user:
        with pytest.raises(OpenedTwice, match="make a new one for each `async with` block"):
            async with user:
                pass
        await trio.lowlevel.checkpoint()
    with pytest.raises(OpenedTwice):
        async with user:
            pass


async def test_a_producer_still_sends_after_it_was_entered_twice() -> None:
    broker = ScriptedBroker()
    async with scripted(broker) as names:
        producer = Producer("g", nameservers=names.address)
        async with producer:
            with pytest.raises(OpenedTwice):
                await producer.__aenter__()
            assert (await producer.send(Message("T", b"x"))).attempts == 1


async def test_calls_outside_the_block_are_refused() -> None:
    admin, producer, puller, pusher = (
        Admin(nameservers=NOWHERE),
        Producer("g", nameservers=NOWHERE),
        PullConsumer("g", nameservers=NOWHERE),
        PushConsumer("g", "T", listen, nameservers=NOWHERE),
    )
    calls: dict[str, list[Callable[[], Awaitable[object]]]] = {
        "administrator": [admin.topics],
        "producer": [lambda: producer.send(Message("T", b"x"))],
        "consumer": [lambda: puller.queues("T"), pusher.ready, pusher.commit],
    }
    for what, some in calls.items():
        for call in some:
            with pytest.raises(ClientClosed, match=f"the {what} is not open"):
                await call()
    async with admin, producer, puller, pusher:
        pass
    for some in calls.values():
        for call in some:
            with pytest.raises(ClientClosed):
                await call()


async def test_a_block_that_could_not_begin_leaves_nothing_behind() -> None:
    async with Client([NOWHERE]) as client, PushConsumer("g", "T", listen, client=client):
        second = PushConsumer("g", "T", listen, client=client)
        with pytest.raises(GroupInUse):
            async with second:
                pass
        with pytest.raises(ClientClosed):
            await second.ready()


@pytest.mark.parametrize(
    ("nameservers", "words"),
    [
        ((), "none is given: pass nameservers"),
        ("", "none is given: pass nameservers"),
        (" ; ", "none is given: pass nameservers"),
        ("localhost", "'localhost' is not an address: write host:port"),
        (["localhost"], "'localhost' is not an address: write host:port"),
        (["127.0.0.1:9876", ""], "'' is not an address: write host:port"),
        ("a:1,b:2", "is not an address: write host:port"),
        ([9876], "9876 is not a text: write host:port"),
    ],
)
def test_name_servers_that_cannot_be_used_are_told_at_once(
    nameservers: Sequence[str], words: str
) -> None:
    for make in (users, Client):
        with pytest.raises(InvalidNameServers, match=words) as caught:
            make(nameservers)
        assert "\n" not in str(caught.value)


def test_a_shared_client_and_name_servers_are_refused_together() -> None:
    client = Client([NOWHERE])
    with pytest.raises(InvalidNameServers, match="pass client= alone"):
        Producer("g", nameservers=[NOWHERE], client=client)


async def test_one_text_may_hold_several_name_servers() -> None:
    async with Client(" 127.0.0.1:1;[::1]:2;") as client:
        assert client.routes.nameservers == ("127.0.0.1:1", "[::1]:2")


def test_clients_of_one_address_and_process_id_have_ids_and_messages_of_their_own() -> None:
    # As in two containers: nothing but chance tells them apart.
    one, two = (new_identity(NOWHERE) for _ in range(2))
    assert (one.host, one.process_id) == (two.host, two.process_id)
    assert one.client_id != two.client_id
    ids = {
        unique_message_key(each.host, each.process_id, each.instance, 1_700_000_000_000, 1)
        for each in (one, two)
    }
    assert len(ids) == 2


async def test_a_client_has_the_id_that_it_is_given() -> None:
    async with Client([NOWHERE], client_id="billing-7") as client:
        assert client.client_id == "billing-7"


@pytest.mark.parametrize("client_id", ["", "a\nb", "x" * 256])
def test_an_id_that_brokers_could_not_do_with_is_refused(client_id: str) -> None:
    with pytest.raises(InvalidClientId, match="1 to 255 printable characters") as caught:
        Client([NOWHERE], client_id=client_id)
    assert "\n" not in str(caught.value)

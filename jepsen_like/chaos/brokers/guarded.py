"""Plain messages to brokers with TLS and access control, whose users change under the clients.

One user is that of the clients: it gets another secret, and clients are told once that is answered.
Another one, a guest, loses the right to send and gets it back.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, Final, NamedTuple

import trio

from dledger_mq import Admin, Client, ConsumeFrom, Credentials, Message, Producer, PushConsumer
from dledger_mq.admin.users import Users
from dledger_mq.clusters.certificate_folder import CertificateFolder
from dledger_mq.errors import Rejected, RequestRefused
from jepsen_like.chaos.brokers.notes import Notes
from jepsen_like.chaos.brokers.security_files import SecurityFiles
from jepsen_like.chaos.brokers.workload import SEND_TIMEOUT_S, Messages, Turn, body_of
from jepsen_like.chaos.nemeses.user_orders import ALLOW_GUEST, DENY_GUEST, RENEW_SECRET
from jepsen_like.chaos.orders import say
from jepsen_like.chaos.service import CallFailed
from jepsen_like.chaos.whole_file import write_whole
from jepsen_like.checkers.guarded_queues import DENIED
from jepsen_like.history.operation import EventType
from remoting.bodies.access import AclEntry, AclPolicy
from remoting.net.access_file import read_credentials
from remoting.wire.codes import ResponseCode

CLIENTS, GUEST = "clients", "guest"
PAUSE_S: Final = 0.2
# Of the turns of one producer with the secret before: it must be refused.
STALE_PLACE, STALE = 2, 0.3
GUEST_PLACE: Final = 3
# A producer repeats a send that is refused until this time is over: more are tried while they are
# denied if it is short.
DENIED_TIMEOUT_S: Final = 0.5


class Sender(NamedTuple):
    """A user with one of its secrets."""

    user: str
    version: int

    @property
    def label(self) -> str:
        """Its name in the history."""
        return f"{self.user}-{self.version}"

    @property
    def credentials(self) -> Credentials:
        return Credentials(self.user, f"secret-{self.version}")


class Guarded(Messages):
    """Plain messages of users with the least rights."""

    # A consumer may have lost its connection while a leader was away, and signs anew.
    longest_wait_s = 30.0

    def __init__(self, notes: Notes, nameservers: Sequence[str], security: SecurityFiles) -> None:
        super().__init__(notes, nameservers)
        self._security = security
        self._tls = CertificateFolder(security.certificates).client()
        self._version = 0
        self._is_ready = trio.Event()
        self._orders, self._ordered = trio.open_memory_channel[str](float("inf"))
        self._open_orders = 1
        self._guest_order = ALLOW_GUEST

    # --- users ----------------------------------------------------------------------------------

    def admin(self) -> Admin:
        return Admin(
            nameservers=self._nameservers,
            tls=self._tls,
            credentials=read_credentials(self._security.access),
        )

    def _client(self) -> Client:
        """Return a client of the administrator that is not open yet."""
        administrator = read_credentials(self._security.access)
        return Client(self._nameservers, tls=self._tls, credentials=administrator)

    def order(self, text: str) -> None:
        self._open_orders += 1
        self._orders.send_nowait(text)

    async def operate(self) -> None:
        """Make the users, or go on with what a killed process has begun; then follow orders."""
        state = self._security.users
        renews = False
        if state.exists():
            begun = json.loads(state.read_text())
            self._version, self._guest_order = begun["version"], begun["guest"]
            renews = begun["renews"]
            await self._change_guest()
        else:
            await self._begin()
        if renews:
            await self._renew()
        self._is_ready.set()
        self._open_orders -= 1
        async for order in self._ordered:
            if order == RENEW_SECRET:
                await self._renew()
            else:
                self._guest_order = order
                await self._change_guest()
            self._open_orders -= 1
            say(changed=order)

    def _keep(self, *, renews: bool) -> None:
        told = {"version": self._version, "guest": self._guest_order, "renews": renews}
        write_whole(self._security.users, json.dumps(told))

    async def _begin(self) -> None:
        clients, guest = Sender(CLIENTS, 0), Sender(GUEST, 0)
        rules = {
            clients: (
                AclEntry(f"Topic:{self._topic}", ("Pub", "Sub")),
                AclEntry(f"Group:{self._group}", ("Sub",)),
            ),
            guest: (AclEntry(f"Topic:{self._topic}", ("Pub",)),),
        }
        for sender, entries in rules.items():

            async def make(sender: Sender = sender, entries: Any = entries) -> None:
                async with self._client() as client:
                    users = Users(client)
                    secret = sender.credentials.secret_key
                    try:
                        await users.create(sender.user, secret)
                    except RequestRefused:  # an attempt without an answer has made it
                        await users.change(sender.user, secret=secret)
                    await users.put_rules(sender.user, AclPolicy("Custom", entries))

            await self._until_done("allow", sender, make)
        self._keep(renews=False)

    async def _renew(self) -> None:
        """Give the user of clients another secret; clients are told when that is answered."""
        self._keep(renews=True)
        new = Sender(CLIENTS, self._version + 1)

        async def change(users: Users) -> None:
            await users.change(CLIENTS, secret=new.credentials.secret_key)

        await self._until_done("deny", Sender(CLIENTS, self._version), self._asked(change))
        await self._until_done("allow", new, trio.lowlevel.checkpoint)
        self._version += 1
        self._keep(renews=False)

    async def _change_guest(self) -> None:
        """Carry out the last order about the guest."""
        self._keep(renews=False)
        denies = self._guest_order == DENY_GUEST
        rule = AclEntry(f"Topic:{self._topic}", ("Pub",), decision="Deny" if denies else "Allow")

        async def change(users: Users) -> None:
            await users.put_rule(GUEST, rule)

        function = "deny" if denies else "allow"
        await self._until_done(function, Sender(GUEST, 0), self._asked(change))

    def _asked(self, change: Callable[[Users], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
        async def make() -> None:
            async with self._client() as client:
                await change(Users(client))

        return make

    async def _until_done(
        self, function: str, sender: Sender, make: Callable[[], Awaitable[object]]
    ) -> None:
        """Make a change, again and again until it is answered."""
        notes = self._notes
        while True:
            outcome, notes.onlooker = await notes.call(
                notes.onlooker, function, None, sender.label, make
            )
            if outcome is EventType.OK:
                return
            await trio.sleep(PAUSE_S)

    # --- clients --------------------------------------------------------------------------------

    @asynccontextmanager
    async def producer(self) -> AsyncIterator[_Producers]:
        await self._is_ready.wait()
        async with AsyncExitStack() as stack:
            yield _Producers(stack, self._made_producer)

    def _made_producer(self, sender: Sender, timeout_s: float) -> Producer:
        return Producer(
            self._writers,
            nameservers=self._nameservers,
            timeout_s=timeout_s,
            tls=self._tls,
            credentials=sender.credentials,
        )

    async def send(self, producer: Any, turn: Turn) -> tuple[EventType, int]:
        sender = self._sender(turn)
        is_denied_often = turn.place in (STALE_PLACE, GUEST_PLACE)
        timeout_s = DENIED_TIMEOUT_S if is_denied_often else SEND_TIMEOUT_S
        own = await producer.of(sender, timeout_s)
        message = Message(self._topic, body_of(turn))

        async def send() -> None:
            try:
                await own.send(message)
            except Rejected as refused:
                if refused.code == ResponseCode.NO_PERMISSION:
                    raise CallFailed(f"{DENIED}: {refused}") from refused
                raise

        value = {"id": turn.number, "as": sender.label}
        outcome, process = await self._notes.call(turn.process, "send", None, value, send)
        if outcome is EventType.OK:
            self._notes.expect(None, turn.number)
        return outcome, process

    def _sender(self, turn: Turn) -> Sender:
        if turn.place == GUEST_PLACE:
            return Sender(GUEST, 0)
        is_stale = turn.place == STALE_PLACE and turn.chance.happens(STALE)
        return Sender(CLIENTS, max(self._version - is_stale, 0))

    @asynccontextmanager
    async def consumer(self, process: int) -> AsyncIterator[None]:
        """Be a member of the group, which leaves it and comes back when its secret is another."""
        await self._is_ready.wait()
        leaves = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._consume, process, leaves)
            yield
            leaves.set()

    async def _consume(self, process: int, leaves: trio.Event) -> None:
        while not leaves.is_set():
            version = self._version
            async with self._made_consumer(process, Sender(CLIENTS, version)):
                while version == self._version and not leaves.is_set():
                    with trio.move_on_after(PAUSE_S):
                        await leaves.wait()

    def _made_consumer(self, process: int, sender: Sender) -> AbstractAsyncContextManager[Any]:
        return PushConsumer(
            self._group,
            self._topic,
            self._listener(process),
            nameservers=self._nameservers,
            consume_from=ConsumeFrom.FIRST,
            tls=self._tls,
            credentials=sender.credentials,
        )

    async def is_drained(self, admin: Admin) -> bool:
        return not self._open_orders and await super().is_drained(admin)


class _Producers:
    """The producers of one place, by whose they are."""

    def __init__(self, stack: AsyncExitStack, made: Callable[[Sender, float], Producer]) -> None:
        self._stack = stack
        self._made = made
        self._open: dict[Sender, Producer] = {}

    async def of(self, sender: Sender, timeout_s: float) -> Producer:
        if sender not in self._open:
            made = self._made(sender, timeout_s)
            self._open[sender] = await self._stack.enter_async_context(made)
        return self._open[sender]

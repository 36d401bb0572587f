"""The block of a producer, consumer or administrator, and the client it uses."""

import re
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, nullcontext
from types import TracebackType
from typing import Final

from dledger_mq.argument_checks import check_kind
from dledger_mq.connection.client import Client
from dledger_mq.connection.lifetime import Lifetime
from dledger_mq.errors import InvalidCredentials, InvalidNameServers, InvalidTls
from remoting.net.tls_config import Tls
from remoting.wire.signature import Credentials


class ClientUse:
    """Uses a client that is opened together with its user, or shared and already open.

    `what` and `name` are for errors, see `Lifetime`. `nameservers` are for a client of the
    user's own, and so are `tls` and `credentials`.

    Raises:
        InvalidArgument: the client is none.
        InvalidNameServers: there is no name server and no client, or there are both.
        InvalidTls: it is given with a client, or its files cannot be used.
        InvalidCredentials: they are given with a client, or are those of no user.
    """

    def __init__(
        self,
        what: str,
        name: str,
        nameservers: str | Sequence[str],
        client: Client | None,
        group: str = "",
        tls: Tls | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        if client is not None and nameservers:
            raise InvalidNameServers("they belong to the shared client: pass client= alone")
        if client is not None and tls is not None:
            raise InvalidTls("it belongs to the shared client: pass client= alone")
        if client is not None and credentials is not None:
            raise InvalidCredentials("they belong to the shared client: pass client= alone")
        if client is not None:
            check_kind(name, "client", client, Client, "a Client that is open")
        self.group: Final = group
        self._is_own = client is None
        self.client: Final = (
            Client(nameservers, tls=tls, credentials=credentials) if client is None else client
        )
        form = "open" + re.sub("[A-Z]", lambda begin: f"_{begin[0].lower()}", name)
        self.lifetime: Final = Lifetime(what, name, form, group=group, client=self.client.lifetime)
        self._stack = AsyncExitStack()

    async def open(
        self, work: Callable[[], AbstractAsyncContextManager[object]] = nullcontext
    ) -> None:
        """Begin the block: open the user's own client, or check the shared one.

        `work` is the user's own context, which ends before the client. Raises OpenedTwice,
        ClientClosed.
        """
        self.lifetime.open()
        async with AsyncExitStack() as stack:
            stack.callback(self.lifetime.close)
            if self._is_own:
                await stack.enter_async_context(self.client)
            else:
                self.client.check_open()
            await stack.enter_async_context(work())
            self._stack = stack.pop_all()

    async def close(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stack.__aexit__(kind, error, trace)

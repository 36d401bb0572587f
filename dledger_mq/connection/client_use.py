"""The client of a producer, consumer or administrator: its own, or one that several share."""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Final

from dledger_mq.connection.client import Client
from dledger_mq.errors import InvalidNameServers


class ClientUse:
    """A client that is opened with its user, or was opened before.

    Args:
        nameservers: for a client of the user's own; see `Client`.
        client: the client to share instead, or None.

    Attributes:
        client: the client.

    Raises:
        InvalidNameServers: there is no name server and no client, or there are both.
    """

    def __init__(self, nameservers: str | Sequence[str], client: Client | None) -> None:
        if client is not None and nameservers:
            raise InvalidNameServers("they belong to the shared client: pass client= alone")
        self.client: Final = Client(nameservers) if client is None else client
        self._is_own = client is None

    async def enter(self, stack: AsyncExitStack) -> None:
        """Open the user's own client for as long as `stack`; check a shared one.

        Raises:
            ClientClosed: the shared client is not open.
        """
        if self._is_own:
            await stack.enter_async_context(self.client)
        else:
            self.client.check_open()

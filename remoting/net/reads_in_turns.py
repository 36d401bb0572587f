"""A plain connection that is read in turns, as the ground of one with TLS.

Its records are decrypted by the task that reads them. Of ten thousand clients that send at once,
each would have such a task run in the same pass of the loop.
"""

from typing import Final

import trio

from dledger.network.plain_socket import read_now
from remoting.net.client_work import READ_COST, TURN_COST, ClientWork


class ReadsInTurns(trio.abc.Stream):
    """Sends and closes as `stream` does, and reads it in turns.

    Args:
        stream: the connection.
        client_work: where reads take turns.

    Attributes:
        transport_stream: the connection.
        read_cost: what a read and its work cost, see `client_work`: as much as a turn in a
            handshake.
    """

    def __init__(self, stream: trio.SocketStream, client_work: ClientWork) -> None:
        self.transport_stream: Final = stream
        self.read_cost = TURN_COST
        self._client_work = client_work

    def handshake_is_over(self) -> None:
        self.read_cost = READ_COST

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self.transport_stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self.transport_stream.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Return what has come. Raises as `trio.SocketStream.receive_some` does."""
        if max_bytes is None:
            return bytes(await self.transport_stream.receive_some())
        while True:
            descriptor = self.transport_stream.socket.fileno()
            if descriptor < 0:
                raise trio.ClosedResourceError("this connection was closed here")
            await self._client_work.readable(descriptor, self.read_cost)
            try:
                data = read_now(descriptor, max_bytes)
            except OSError as error:
                raise trio.BrokenResourceError(f"the connection broke: {error}") from error
            if data is not None:
                return data

    async def aclose(self) -> None:
        await self.transport_stream.aclose()

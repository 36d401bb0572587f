"""TLS over a stream.

Trio's own `SSLStream` gives one record a call, of at most 16 KiB, and so one small request a call.
Its readers then do once a request what they do once a batch without TLS. This one gives all that
has come, and adds a quarter of the processor time. It also sends the alert that says why a
handshake failed.

The bytes of TLS itself (RFC 8446) are the standard library's.
"""

from __future__ import annotations

import ssl
from contextlib import suppress
from typing import Any, Final

import trio

# A record holds so much plain text at most (RFC 8446, section 5.1), and one read gives one record.
_RECORD_BYTES: Final = 16_384
# What one call gives unless told otherwise, and what is read from the network at once.
_RECEIVE_BYTES: Final = 65_536
# More than this is encrypted and sent piece by piece: the copy stays small, and others get turns.
_SEND_BYTES: Final = 262_144


class SecureStream(trio.abc.Stream):
    """One side of a connection with TLS; `do_handshake` comes first.

    A peer may close the connection without TLS's last message: that is an end, not an error, so
    what is sent here must say its length. Closing does not wait for the peer's last message. A call
    that is cancelled while it sends breaks the connection, as half a record may have gone out.

    Args:
        stream: carries the records.
        context: the certificates and what is asked of the peer's.
        server_side: whether the peer speaks first.
        server_hostname: as in `ssl.SSLContext.wrap_bio`.

    Attributes:
        transport_stream: carries the records.
    """

    def __init__(
        self,
        stream: trio.abc.Stream,
        context: ssl.SSLContext,
        *,
        server_side: bool = False,
        server_hostname: str | None = None,
    ) -> None:
        self.transport_stream: Final = stream
        self._incoming: Final = ssl.MemoryBIO()
        self._outgoing: Final = ssl.MemoryBIO()
        self._tls: Final = context.wrap_bio(
            self._incoming,
            self._outgoing,
            server_side=server_side,
            server_hostname=server_hostname,
        )
        # Sends, and what receiving has to answer, such as a change of keys, leave in their order.
        self._sends: Final = trio.Lock()
        self._is_closed = False
        # Nothing is sent after half a record, and nothing is read after one that was refused.
        self._sent_half = False
        self._refused: ssl.SSLError | None = None

    def getpeercert(self) -> dict[str, Any] | None:
        """Return the peer's certificate, as `ssl.SSLObject.getpeercert` does."""
        return self._tls.getpeercert()

    def selected_alpn_protocol(self) -> str | None:
        """Return the protocol that both sides chose in the handshake; None if none was offered."""
        return self._tls.selected_alpn_protocol()

    async def do_handshake(self) -> None:
        """Agree on keys, and check certificates.

        Raises `trio.BrokenResourceError`, whose cause is the `ssl.SSLError` or the error of the
        network. The peer is told why.
        """
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                await self._flush()
                await self._take_in(_RECEIVE_BYTES)
            except ssl.SSLError as error:
                self._refused = error
                await self._answer()
                raise trio.BrokenResourceError from error
            else:
                await self._flush()
                return

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Send all of `data`. Raises as `trio.abc.SendStream.send_all` does."""
        if len(data) <= _SEND_BYTES:
            await self._send(data)
            return
        with memoryview(data) as whole:
            for at in range(0, len(data), _SEND_BYTES):
                await self._send(whole[at : at + _SEND_BYTES])

    async def wait_send_all_might_not_block(self) -> None:
        """Wait until the network takes more."""
        await self.transport_stream.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Return all that has come, up to `max_bytes`; empty when the peer has ended.

        Raises as `trio.abc.ReceiveStream.receive_some` does.
        """
        if max_bytes is None:
            max_bytes = _RECEIVE_BYTES
        elif max_bytes < 1:
            raise ValueError("max_bytes must be 1 or more")
        self._check_open()
        data = None
        if self._has_more():
            await trio.lowlevel.checkpoint()
            data = self._decrypted(max_bytes)
        while data is None:
            await self._answer()
            await self._take_in(max_bytes)
            data = self._decrypted(max_bytes)
        return data

    async def aclose(self) -> None:
        """Close the connection, with TLS's last message if nothing else is being sent."""
        if self._is_closed:
            await trio.lowlevel.checkpoint()
            return
        self._is_closed = True
        try:
            if self._refused is None and not self._sends.locked():
                with suppress(ssl.SSLError):
                    self._tls.unwrap()
                await self._answer()
        finally:
            await self.transport_stream.aclose()

    def _check_open(self) -> None:
        if self._is_closed:
            raise trio.ClosedResourceError("this connection was closed here")

    async def _send(self, data: bytes | bytearray | memoryview) -> None:
        self._check_open()
        try:
            self._tls.write(data)
        except ssl.SSLError as error:
            raise trio.BrokenResourceError from error
        await self._flush()

    async def _answer(self) -> None:
        """Send what TLS has to say by itself. Reading goes on if the peer no longer hears it."""
        if self._outgoing.pending:
            with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                await self._flush()

    async def _flush(self) -> None:
        """Send what TLS has to send."""
        try:
            self._sends.acquire_nowait()
        except trio.WouldBlock:
            await self._sends.acquire()
        try:
            if self._sent_half:
                raise trio.BrokenResourceError("an earlier send was cut off")
            if records := self._outgoing.read():
                self._sent_half = True
                await self.transport_stream.send_all(records)
                self._sent_half = False
        finally:
            self._sends.release()

    async def _take_in(self, max_bytes: int) -> None:
        records = await self.transport_stream.receive_some(max(max_bytes, _RECORD_BYTES))
        if records:
            self._incoming.write(records)
        else:
            self._incoming.write_eof()

    def _has_more(self) -> bool:
        """Whether a read may give something before the network does."""
        return bool(self._incoming.pending or self._tls.pending() or self._refused is not None)

    def _decrypted(self, max_bytes: int) -> bytes | None:
        """Return what has come; None if TLS needs more. Raises BrokenResourceError."""
        if self._refused is not None:
            raise trio.BrokenResourceError from self._refused
        pieces: list[bytes] = []
        while max_bytes:
            try:
                piece = self._tls.read(min(max_bytes, _RECORD_BYTES))
            except ssl.SSLWantReadError:
                return b"".join(pieces) if pieces else None
            except ssl.SSLEOFError:
                break  # it ended without TLS's last message
            except ssl.SSLError as error:
                # What came before was right; the next call raises.
                self._refused = error
                if pieces:
                    break
                raise trio.BrokenResourceError from error
            if not piece:
                break
            pieces.append(piece)
            max_bytes -= len(piece)
            if not self._has_more():
                break  # to ask once more would cost as much as the read did
        return b"".join(pieces)

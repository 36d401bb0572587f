"""The connection that this process dials to another process, for all groups that both share."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from functools import partial
from typing import Protocol

import trio

from dledger.config import Address
from dledger.core.messages import Heartbeat, HeartbeatResponse
from dledger.errors import MessageMalformed
from dledger.network.introduction import welcome_of
from dledger.network.network import TCP, Network
from dledger.network.plain_socket import NO_DESCRIPTOR, plain_descriptor, write_now
from dledger.network.secure_stream import SecureStream
from dledger.network.tls import ENDED_EARLY, GroupTls, Stream, TlsRefused, handshake_refused
from dledger.system_refusals import meaning
from dledger.wire.channel_protocol import decode_channel_answer
from dledger.wire.codec import (
    PROTOCOL_VERSION,
    SHARED_HEARTBEATS,
    SHARED_RESPONSES,
    encode_shared,
)
from dledger.wire.frame import Frame, FrameDecoder
from dledger.wire.handshake import Caller, Hello, encode_hello
from dledger.wire.proof import Shows, shows_nothing

# A pause is a random part of its length, at least this share. So callers that lost the same peer at
# the same moment do not dial it in step, and none pauses longer than its limit, on which members
# that wait for calls rely.
LEAST_SHARE = 0.5

# The pause after a connection that had been open, or when there is news of the peer. It is short:
# the next attempt shows whether the peer's process runs. A process that is being killed may close
# its listening socket last, and so accept one more connection that it breaks at once.
LEAST_PAUSE_S = 0.01


class RetryPause:
    """Pauses between attempts: each is about twice as long as the last; news of the peer ends it.

    A connection that was open for at least the longest pause is dialled again at once when it ends:
    if that is refused, the peer's process has ended. One that breaks repeatedly is not.
    """

    def __init__(self, first_s: float, last_s: float) -> None:
        self._first_s = first_s
        self._last_s = last_s
        self._pause_s = first_s
        self._stands_since: float | None = None
        self._scope = trio.CancelScope()

    def connected(self) -> None:
        self._stands_since = trio.current_time()
        self._pause_s = self._first_s

    async def wait(self) -> None:
        """Wait until the next attempt, after one that failed or a connection that ended."""
        now, since = trio.current_time(), self._stands_since
        self._stands_since = None
        if since is not None and now - since >= self._last_s:
            pause_s, self._pause_s = 0.0, LEAST_PAUSE_S
        else:
            pause_s = self._pause_s * random.uniform(LEAST_SHARE, 1.0)
            self._pause_s = min(2 * self._pause_s, self._last_s)
        with trio.CancelScope(deadline=now + pause_s) as self._scope:
            await trio.sleep_forever()

    def cut_short(self) -> None:
        """End a running pause after LEAST_PAUSE_S: there is news of the peer."""
        soon = trio.current_time() + LEAST_PAUSE_S
        self._scope.deadline = min(self._scope.deadline, soon)


logger = logging.getLogger(__name__)

# Bytes that may wait for the socket of one other process. A window of sixteen batches fits several
# times; if more bytes wait, the process does not read.
MAX_OUTBOX_BYTES = 64 * 1024 * 1024

# A connection that does not open in this time is dialled again.
CONNECT_TIMEOUT_S = 2.0

# The pause between two attempts to connect or to open a channel: short at first, because a process
# that was restarted is soon back.
FIRST_RETRY_S = 0.05
LAST_RETRY_S = 1.0
# The longest pause before another attempt to connect. An only first voter with an empty folder
# waits for calls before it begins its group, by multiples of this (`dledger.node.member_replica`).
# An attempt that is refused costs about 0.1 ms.
LAST_DIAL_S = 0.2

# An outage shorter than this is not logged: the members of a group start one by one.
QUIET_S = 3.0

# Problems logged in one outage: a peer may be down at first, and then not speak TLS.
MAX_SAID = 3

# With TLS the outbox is encrypted in pieces of this size. Each holds up the event loop for 0.25 ms
# or less.
SECURE_PIECE_BYTES = 256 * 1024

# A peer reads large pieces: a batch is 256 KiB.
RECEIVE_BYTES = 256 * 1024


class ChannelEnd(Protocol):
    @property
    def number(self) -> int: ...

    @property
    def opening(self) -> bytes: ...

    def opened(self) -> None: ...

    def ended(self, reason: str | None) -> None: ...

    def refused(self) -> None: ...


class HostConnection:
    """One connection to one address, the channels on it, and the frames that wait to leave.

    Args:
        home: where this process listens.
        address: where the other process listens.
        gathers: called with this connection when the first message is kept for `flush`.
        tls: the certificates that both sides show; None without TLS.
        peer: the name that the other process must prove, with TLS.
        network: dials.
        shows: returns what to prove to a process that asks.
    """

    def __init__(
        self,
        home: Address,
        address: Address,
        gathers: Callable[[HostConnection], None],
        tls: GroupTls | None = None,
        peer: str = "",
        network: Network = TCP,
        shows: Shows = shows_nothing,
    ) -> None:
        self.address = address
        self._shows = shows
        self._network = network
        self._tls = tls
        self._peer = peer
        self._generation = 0  # of the certificates that this connection was dialled with
        self.last_problem: str | None = None
        self._hello = Hello(Caller.PEER, address=home)
        self._channels: dict[int, ChannelEnd] = {}
        self._last_number = -1
        self._connected = False
        self._ask_at: dict[int, float] = {}  # when to try again to open a refused channel
        self._waits_s: dict[int, float] = {}  # the last pause before a refused channel's retry
        self._opened_at: dict[int, float] = {}  # when each open channel was opened
        self._gathers = gathers
        self._heartbeats: list[int] = []
        self._responses: list[int] = []
        self._outbox: list[bytes] = []
        self._outbox_bytes = 0
        self._writing = False
        self._fileno = NO_DESCRIPTOR
        self._wake = trio.lowlevel.ParkingLot()
        self._refusals = trio.lowlevel.ParkingLot()
        self._life = trio.CancelScope()
        self._pause = RetryPause(FIRST_RETRY_S, LAST_DIAL_S)
        self._scope: trio.CancelScope | None = None
        self._down_since = trio.current_time()
        self._said: set[str] = set()  # the logged problems of this outage

    # --- channels -----------------------------------------------------------------------------

    def new_number(self) -> int:
        """Return a number for a channel. None is used twice, so a late answer fits no other
        channel.
        """
        self._last_number += 1
        return self._last_number

    def add(self, channel: ChannelEnd) -> None:
        """Open a channel once there is a connection; on an open one, send its opening again."""
        self._channels[channel.number] = channel
        if self._connected:
            self.write(channel.opening)

    def remove(self, channel: ChannelEnd) -> bool:
        """Forget a channel; return whether others are left."""
        del self._channels[channel.number]
        self._ask_at.pop(channel.number, None)
        self._waits_s.pop(channel.number, None)
        self._opened_at.pop(channel.number, None)
        return bool(self._channels)

    @property
    def outbox_bytes(self) -> int:
        return self._outbox_bytes

    # --- sending ------------------------------------------------------------------------------

    def collect(self, message: Heartbeat | HeartbeatResponse, number: int) -> None:
        if not self._heartbeats and not self._responses:
            self._gathers(self)
        kept = self._heartbeats if type(message) is Heartbeat else self._responses
        kept.append(number)
        kept += message

    def flush(self) -> None:
        heartbeats, self._heartbeats = self._heartbeats, []
        responses, self._responses = self._responses, []
        try:
            if heartbeats and self._connected:
                self.write(encode_shared(SHARED_HEARTBEATS, heartbeats))
            if responses and self._connected:
                self.write(encode_shared(SHARED_RESPONSES, responses))
        except Exception:
            # One group's message that cannot be encoded must not end the timer of all groups.
            logger.exception("peers at %s: heartbeats were dropped", self.address)

    def write(self, frame: bytes) -> None:
        """Send a frame soon. Only for an open connection."""
        if not self._outbox and not self._writing:
            frame = frame[write_now(self._fileno, frame) :]
            if not frame:
                return
        self._outbox.append(frame)
        self._outbox_bytes += len(frame)
        if self._outbox_bytes > MAX_OUTBOX_BYTES and self._scope is not None:
            self._note(f"reads too slowly: {self._outbox_bytes} bytes wait")
            self._scope.cancel()
        self._wake.unpark()

    # --- the connection -----------------------------------------------------------------------

    async def run(self) -> None:
        with self._life:
            await self._keep_open()

    def close(self) -> None:
        self._life.cancel()

    def hurry(self) -> None:
        """Dial again soon: the other process has just connected, or hung up."""
        self._pause.cut_short()

    async def _keep_open(self) -> None:
        while True:
            try:
                with trio.fail_after(CONNECT_TIMEOUT_S):
                    stream = await self._network.dial(self.address)
                async with stream:
                    await self._converse(stream)
            except (OSError, trio.TooSlowError, trio.BrokenResourceError) as error:
                self._note(f"cannot be reached: {meaning(error.__cause__ or error)}")
                if no_process_listens(error):
                    for channel in tuple(self._channels.values()):
                        channel.refused()
            except MessageMalformed as error:
                self._note(error.problem)
            except Exception as error:
                # A mistake in one connection must not end the members of all groups.
                self._note(repr(error))
                logger.exception("peers at %s: the connection is dialled anew", self.address)
            await self._pause.wait()

    async def _converse(self, dialled: Stream) -> None:
        stream = await self._proven(dialled)
        shown = self._shows()
        sent: dict[int, bytes] = {}
        if shown is None:  # nothing comes between the introduction and the channels
            sent = {number: channel.opening for number, channel in self._channels.items()}
        await stream.send_all(b"".join((encode_hello(self._hello), *sent.values())))
        decoder = FrameDecoder()
        with trio.fail_after(CONNECT_TIMEOUT_S):
            frames = await welcome_of(stream, self._hello, shown, partial(_frames, stream, decoder))
        self._begin(stream)
        try:
            for number, channel in self._channels.items():
                if sent.get(number) != channel.opening:
                    self.write(channel.opening)
            self._take_answers(frames[1:])
            with trio.CancelScope() as self._scope:
                await self._all_ways(stream, decoder)
        finally:
            self._end()

    async def _proven(self, dialled: Stream) -> Stream:
        """Return the stream to use once the peer has proven its name. Raises TlsRefused."""
        if self._tls is None:
            return dialled
        self._generation = self._tls.generation
        with trio.fail_after(CONNECT_TIMEOUT_S):
            return await self._tls.dialled(dialled, self._peer)

    def _begin(self, stream: Stream) -> None:
        self.last_problem = None
        self._fileno = plain_descriptor(stream)
        self._writing = self._fileno == NO_DESCRIPTOR
        self._connected = True
        self._pause.connected()
        if self._said:
            logger.info("peers at %s: connected again", self.address)
        self._said.clear()

    def _end(self) -> None:
        self._connected = self._writing = False
        self._fileno = NO_DESCRIPTOR  # the system may reuse the number for another connection
        self._down_since = trio.current_time()
        self._outbox.clear()
        self._outbox_bytes = 0
        self._ask_at.clear()
        self._waits_s.clear()
        self._opened_at.clear()
        for channel in tuple(self._channels.values()):
            channel.ended(None)

    async def _all_ways(self, stream: Stream, decoder: FrameDecoder) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._read_answers, stream, decoder, nursery.cancel_scope)
            nursery.start_soon(self._ask_again)
            try:
                await (self._write_stream(stream) if self._writing else self._write(stream))
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                nursery.cancel_scope.cancel()

    async def _write(self, stream: Stream) -> None:
        while True:
            while self._outbox:
                frames, self._outbox = self._outbox, []
                self._outbox_bytes = 0
                self._writing = True
                await stream.send_all(frames[0] if len(frames) == 1 else b"".join(frames))
                self._writing = False
            await self._wake.park()

    async def _write_stream(self, stream: Stream) -> None:
        while True:
            while self._outbox:
                data = memoryview(b"".join(self._outbox))
                self._outbox.clear()
                self._outbox_bytes = 0
                for at in range(0, len(data), SECURE_PIECE_BYTES):
                    await stream.send_all(data[at : at + SECURE_PIECE_BYTES])
            await self._wake.park()

    async def _read_answers(
        self, stream: Stream, decoder: FrameDecoder, scope: trio.CancelScope
    ) -> None:
        """Read the peer's answers to openings; it sends nothing else on this connection."""
        try:
            while data := await stream.receive_some(RECEIVE_BYTES):
                self._take_answers(decoder.feed(bytes(data)))
        except trio.BrokenResourceError:
            pass  # a broken connection ends like a closed one
        except MessageMalformed as error:
            self._note(error.problem)
        scope.cancel()

    def _take_answers(self, frames: list[Frame]) -> None:
        for frame in frames:
            number, refusal = decode_channel_answer(frame)
            channel = self._channels.get(number)
            if channel is None:
                continue  # it was closed meanwhile
            now = trio.current_time()
            if refusal is None:
                self._opened_at[number] = now
                channel.opened()
            else:
                if now - self._opened_at.pop(number, now) >= LAST_RETRY_S:
                    self._waits_s.pop(number, None)  # the channel was open: this problem is new
                wait_s = min(2 * self._waits_s.get(number, FIRST_RETRY_S / 2), LAST_RETRY_S)
                self._waits_s[number] = wait_s
                self._ask_at[number] = now + wait_s
                self._refusals.unpark()
                channel.ended(refusal)
                self._dial_again_if_renewed()

    def _dial_again_if_renewed(self) -> None:
        """Dial again if the certificates were renewed: the new one may name the refused member."""
        renewed = self._tls is not None and self._tls.generation != self._generation
        if renewed and self._scope is not None:
            self._scope.cancel()

    async def _ask_again(self) -> None:
        """Open refused channels again: the other process may not have had the group yet."""
        while True:
            while not self._ask_at:
                await self._refusals.park()
            await trio.sleep(FIRST_RETRY_S)
            now = trio.current_time()
            for number in [number for number, at in self._ask_at.items() if at <= now]:
                del self._ask_at[number]
                self.write(self._channels[number].opening)

    def _note(self, problem: str) -> None:
        """Keep the reason why there is no connection; log it once, unless the outage has just
        begun.
        """
        self.last_problem = problem
        if problem in self._said or len(self._said) >= MAX_SAID:
            return
        if trio.current_time() - self._down_since < QUIET_S:
            return
        self._said.add(problem)
        logger.warning("peers at %s: %s", self.address, problem)


async def _frames(stream: Stream, decoder: FrameDecoder) -> list[Frame]:
    while not (frames := decoder.feed(await _received(stream))):
        pass
    return frames


async def _received(stream: Stream) -> bytes:
    try:
        data = await stream.receive_some(RECEIVE_BYTES)
    except trio.BrokenResourceError as error:
        if not isinstance(stream, SecureStream):
            raise
        raise handshake_refused(error, ENDED_EARLY) from error
    if not data and isinstance(stream, SecureStream):
        raise TlsRefused(ENDED_EARLY, lasting=False)
    if not data:
        raise MessageMalformed(
            "the connection ended before an answer: another program, or an older protocol version "
            f"than {PROTOCOL_VERSION}?"
        )
    return bytes(data)


def no_process_listens(error: BaseException) -> bool:
    """Return whether the machine itself refused the connection: the process there has ended.

    A machine that is down or cut off does not answer. If a name has several addresses, all of them
    must have refused.
    """
    cause = error.__cause__
    if isinstance(error, OSError) and isinstance(cause, BaseExceptionGroup):
        return all(isinstance(each, ConnectionRefusedError) for each in cause.exceptions)
    return isinstance(error, ConnectionRefusedError)

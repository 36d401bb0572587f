"""One connection: commands in, commands out, on one reader and one writer task."""

import logging
import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import trio

from dledger.network.plain_socket import (
    NO_DESCRIPTOR,
    plain_descriptor,
    read_now,
    read_some,
    write_now,
)
from remoting.net.address import Address
from remoting.net.client_work import ClientWork, now, take_steps
from remoting.net.errors import (
    ENDED_HERE,
    ConnectFailed,
    ConnectionClosed,
    PeerSilent,
    PeerTooSlow,
    RequestTimedOut,
    TooManyRequests,
)
from remoting.net.held_bytes import HeldBytes
from remoting.net.request_table import MAX_WAITING_REQUESTS, RequestTable, Settle, WaitingRequest
from remoting.net.reset_on_death import end_in_order
from remoting.net.tls import NO_NAMES, broken
from remoting.wire.command import ONEWAY_FLAG, RESPONSE_FLAG, Command
from remoting.wire.errors import FrameError, ProtocolDiffers, RemotingError
from remoting.wire.frame import MAX_FRAME_BYTES, FrameDecoder, encode_command

_log = logging.getLogger(__name__)

# The size of a read, and of a read after a full one: requests that came together are handed over
# together, 64 of 1 KB for one, and large ones take few reads.
_RECEIVE_BYTES: Final = 128 * 1024
_MANY_BYTES: Final = 512 * 1024

# Frames are joined up to about this much for one send; joining more costs copies and saves nothing.
_SEND_BYTES: Final = 256 * 1024

# While all connections together hold much, each one is paused above this.
_TIGHT_PAUSE_BYTES: Final = 256 * 1024

_RESPONSE_AND_ONEWAY: Final = RESPONSE_FLAG | ONEWAY_FLAG


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits of one connection.

    Attributes:
        max_frame_bytes: the longest accepted frame.
        max_unsent_bytes: of waiting frames; above it the connection is closed. It fits the answers
            to 256 pulls of 256 KiB, which is what one read can bring.
        pause_unsent_bytes: above this, nothing more is read or handed over until the peer has taken
            some; a client that asks faster than it reads is slowed down, not cut off.
        max_commands_a_turn: commands that are decoded, and requests handed over, in one call. At
            most this many answers wait above the pause.
        max_waiting_requests: requests of ours without a reply.
    """

    max_frame_bytes: int = MAX_FRAME_BYTES
    max_unsent_bytes: int = 4 * MAX_FRAME_BYTES
    pause_unsent_bytes: int = 8 * 1024 * 1024
    max_commands_a_turn: int = 64
    max_waiting_requests: int = MAX_WAITING_REQUESTS


# Takes requests that came together; returns how many it took. The others are handed over again,
# after the steps of answers that were begun.
Receive: TypeAlias = "Callable[[Connection, Sequence[Command]], int]"


class Connection:
    """One connection, from before it is made until after it is closed.

    `send`, `send_frame`, `request` and `close` are synchronous and never block. Frames sent before
    `run` begins wait, within the limits.

    Args:
        peer: the other side.
        limits: of this connection.
        first_opaque: the first number for our own requests.
        held: the bytes of all connections of a server, or None.
        client_work: where it takes turns with other connections; without it turns have no end.

    Attributes:
        peer: the other side.
        attributes: for the owner, such as a broker's record of the client.
        names: those that the client's certificate shows; none without one.
        gathers_requests: requests of ours leave with those that are made in the same pass of the
            loop, unless no other one waits for its reply. For a client with many tasks that ask.
        last_activity: time of the last bytes received or sent, on trio's clock.
    """

    def __init__(
        self,
        peer: Address,
        limits: ConnectionLimits,
        first_opaque: int = 0,
        held: HeldBytes | None = None,
        client_work: ClientWork | None = None,
    ) -> None:
        self.peer = peer
        self.attributes: dict[str, Any] = {}
        self.names: frozenset[str] = NO_NAMES
        self.gathers_requests = False
        self._clock = trio.lowlevel.current_clock().current_time  # saves a look-up at each call
        self.last_activity = self._clock()
        self._limits = limits
        self._requests = RequestTable(limits.max_waiting_requests, first_opaque)
        self._queue: deque[bytes] = deque()
        self._queued_total = 0  # bytes ever queued
        self._begun_total = 0  # bytes ever handed to the stream
        self._sent_total = 0  # bytes ever taken by the stream
        self._partial_bytes = 0  # of an incomplete frame
        self._kept: dict[int, int] = {}  # by opaque: bytes of requests that are being answered
        self._kept_bytes = 0
        self._partial_since = self._unsent_since = self.last_activity
        self._heard_at = math.inf  # time of the peer's last bytes, or of the connection's begin
        self._owes_since = math.inf  # when the first overdue request since then was sent
        self._held = held
        self._client_work = client_work
        self._turn_ends = math.inf
        self._is_in_line = False
        self._is_watched = False  # whether `client_work` calls `_readable`
        self._is_readable = False
        self._is_paused = False  # until the peer has taken some bytes
        self._wanted = _RECEIVE_BYTES
        self._has_decoded = False  # whether the peer has sent a frame
        self._decoder = FrameDecoder(limits.max_frame_bytes, limits.max_commands_a_turn)
        self._receive: Receive | None = None
        self._commands: list[Command] = []  # not handed over yet
        self._steps: deque[Iterator[object]] = deque()  # of answers that were begun
        self._gathers = False  # whether frames wait for `write_gathered`
        self._then: deque[Callable[[], None]] = deque()  # calls once the peer has taken enough
        self._wake = trio.lowlevel.ParkingLot()
        self._taken = trio.lowlevel.ParkingLot()
        self._scope: trio.CancelScope | None = None
        self._descriptor = NO_DESCRIPTOR
        self._close_error: RemotingError | None = None
        self._last_words: str | None = None  # why it closes once all is sent
        self._has_peer_ended = False

    def __repr__(self) -> str:
        return f"<Connection {self.peer}{' closed' if self.is_closed else ''}>"

    @property
    def is_closed(self) -> bool:
        return self._close_error is not None

    @property
    def close_error(self) -> RemotingError | None:
        return self._close_error

    @property
    def unsent_bytes(self) -> int:
        return self._queued_total - self._sent_total

    @property
    def held_bytes(self) -> int:
        """The bytes of an incomplete frame, of requests being answered, and of unsent answers."""
        if self._close_error is not None:
            return 0
        return self._partial_bytes + self._kept_bytes + self.unsent_bytes

    def stalled_since(self) -> float:
        """Return when it last made progress, on trio's clock; infinity if it holds nothing.

        Progress means that the peer takes some bytes, or completes a frame.
        """
        since = math.inf
        if self._partial_bytes:
            since = self._partial_since
        if self.unsent_bytes:
            since = min(since, self._unsent_since)
        return since

    def unread_s(self, now: float) -> float:
        """Return for how long the peer has taken nothing; 0 if nothing waits for it."""
        return now - self._unsent_since if self.unsent_bytes else 0.0

    @property
    def is_behind(self) -> bool:
        """Whether the unsent bytes pause reading, or the connection is closed."""
        return (
            self._queued_total - self._sent_total > self._limits.pause_unsent_bytes
            or bool(self._then)
            or self._close_error is not None
        )

    def when_taken(self, then: Callable[[], None]) -> None:
        """Call `then` once the unsent bytes no longer pause reading; often at once.

        For long answers that are made later than their requests came, so that they are made only as
        fast as the peer reads. It is not called if the connection closes before.
        """
        if self._close_error is not None:
            return
        if self.is_behind:
            self._then.append(then)
        else:
            self._call(then)

    def set_aside(self, command: Command) -> None:
        """Count the bytes of a request no more: it waits for long, without its content and within
        limits of its own. Thousands of such requests must not keep others from being read.
        """
        if share := self._kept.get(command.opaque, 0):
            self._kept[command.opaque] = 0
            self._release(share)

    @property
    def is_turn_over(self) -> bool:
        """Whether the rest of the work for this connection must wait for its next turn."""
        return now() >= self._turn_ends

    def go_on(self, steps: Iterator[object]) -> None:
        """Take steps, in turns, before further requests of this connection are handed over.

        For an answer that takes long. Each step takes a millisecond at most. If the connection
        closes, the rest is dropped.
        """
        if self._close_error is None:
            self._steps.append(steps)
            self._stand_in_line()

    @property
    def waiting_requests(self) -> int:
        return len(self._requests)

    def send(self, command: Command) -> None:
        """Queue a command. The reply to a oneway request is dropped, as its sender wants none.

        Raises FrameError if the command cannot be a frame.
        """
        self.send_all((command,))

    def send_all(self, commands: Sequence[Command]) -> None:
        """Queue several commands, in one write while the peer takes all.

        Raises FrameError if a command cannot be a frame; then none of them is sent.
        """
        sent = [one for one in commands if one.flag & _RESPONSE_AND_ONEWAY != _RESPONSE_AND_ONEWAY]
        if not sent:
            return
        frames = list(map(encode_command, sent))
        if self._close_error is None:  # release the requests that they answer
            release = self._kept.pop
            self._release(sum([release(one.opaque, 0) for one in sent if one.flag & RESPONSE_FLAG]))
        self.send_frame(frames[0] if len(frames) == 1 else b"".join(frames))

    def send_frame(self, frame: bytes, *, is_patient: bool = False) -> None:
        """Queue a whole frame. On a closed connection it is dropped.

        If the unsent bytes exceed the limit, the connection is closed.

        Args:
            frame: what is sent.
            is_patient: it leaves with what follows in the same pass of the loop.
        """
        if self._close_error is not None:
            return
        size = len(frame)
        unsent = self._queued_total - self._sent_total + size
        if unsent > self._limits.max_unsent_bytes:
            self.close(PeerTooSlow(str(self.peer), unsent, self._limits.max_unsent_bytes))
            return
        if unsent == size:
            self._unsent_since = self._clock()
            # The connection is idle: a write here saves the wake-up of the writing task.
            if (
                self._descriptor != NO_DESCRIPTOR
                and not self._gathers
                and not is_patient
                and (written := self._write_now(frame))
            ):
                self._queued_total += written
                if written == size:
                    return
                frame = frame[written:]
                size -= written
        self._queue.append(frame)
        self._queued_total += size
        if self._held is not None:
            self._held.add(size)
        if not self._gathers:
            self._wake.unpark_all()
        elif unsent >= _SEND_BYTES:
            self.write_gathered()
            self._gathers = not self._queue

    def gather(self) -> None:
        """Keep frames until `write_gathered`, or until they fill one write.

        For answers that are made one after the other: one write for all of them. Nothing may be
        awaited in between.
        """
        # With TLS the writing task joins frames anyway; earlier frames must leave first.
        self._gathers = self._descriptor != NO_DESCRIPTOR and not self.unsent_bytes

    def write_gathered(self) -> None:
        if not self._gathers:
            return
        self._gathers = False
        if not self._queue:
            return
        frames = self._queue.popleft() if len(self._queue) == 1 else b"".join(self._queue)
        self._queue.clear()
        written = self._write_now(frames)
        if written and self._held is not None:
            self._held.add(-written)
        if written < len(frames):
            self._queue.append(frames[written:])
        if self._queue or self._last_words is not None:
            self._wake.unpark_all()

    def _write_now(self, frame: bytes) -> int:
        written = write_now(self._descriptor, frame)
        if written:
            self._begun_total += written
            self._sent_total += written
            self.last_activity = self._unsent_since
        return written

    def request(self, command: Command, settle: Settle, timeout_s: float) -> int | None:
        """Send a request; `settle` is called once, with the reply or the error.

        It may be called before this returns, if the request cannot be sent at all. The opaque of
        `command` is set here.

        Args:
            command: the request.
            settle: must not block and should not raise; what it raises is logged.
            timeout_s: after this long (and at most half a second more) it gets
                RequestTimedOut.

        Returns:
            The opaque for `forget`; None if it was settled already.
        """
        if self._close_error is not None:
            self._tell(settle, self._lost(outcome_unknown=False))
            return None
        if self._requests.full:
            self._tell(settle, TooManyRequests(str(self.peer), self._requests.limit))
            return None
        opaque = self._requests.next_opaque()
        command.opaque = opaque
        try:
            frame = encode_command(command)
        except FrameError as error:
            self._tell(settle, error)
            return None
        deadline = self._clock() + timeout_s
        waiting = WaitingRequest(command.code, settle, deadline, timeout_s, self._queued_total)
        is_patient = self.gathers_requests and len(self._requests) > 0
        self._requests.add(opaque, waiting)
        self.send_frame(frame, is_patient=is_patient)
        return opaque

    def send_oneway(self, command: Command) -> None:
        """Send a request without a reply, with its opaque and oneway flag set here. Raises
        FrameError.
        """
        command.opaque = self._requests.next_opaque()
        command.flag |= ONEWAY_FLAG
        self.send_frame(encode_command(command))

    @property
    def next_deadline(self) -> float:
        """The earliest timeout of a waiting request; infinity if there is none."""
        return self._requests.next_deadline

    def forget(self, opaque: int) -> None:
        """Stop waiting for a reply: `settle` is not called, and the reply is dropped."""
        self._requests.take(opaque)

    def expire(self, now: float, most_silent_s: float = math.inf) -> None:
        """Time out requests. The owner of the connection calls this.

        Args:
            now: on trio's clock.
            most_silent_s: close the connection if a request is overdue and the peer has sent
                nothing since for this long. A peer that sends anything is alive, and only late with
                an answer.
        """
        overdue = self._requests.expired(now) if len(self._requests) else []
        for one in overdue:
            self.note_overdue(one.deadline - one.timeout_s)
        if (silent := now - self._owes_since) >= most_silent_s:
            self.close(PeerSilent(str(self.peer), silent))
        # Last, so that a retry is not sent on a connection that is about to close.
        for one in overdue:
            error = RequestTimedOut(str(self.peer), one.code, one.timeout_s)
            self._tell(one.settle, error)

    def note_overdue(self, sent_at: float) -> None:
        """Note that a request sent at `sent_at` had no reply within its timeout."""
        if sent_at >= self._heard_at:
            self._owes_since = min(self._owes_since, sent_at)

    def close(self, error: RemotingError | str) -> None:
        """Close at once; drop unsent frames, and fail every waiting request.

        Args:
            error: the reason, for the log and for the waiting requests.
        """
        if self._close_error is not None:
            return
        if isinstance(error, str):
            error = ConnectionClosed(str(self.peer), error, outcome_unknown=False)
        held = self.held_bytes
        self._close_error = error
        self._unwatch()
        self._queue.clear()
        self._then.clear()
        self._commands = []
        self._steps.clear()
        if self._held is not None:
            self._held.add(-held)
        if self._scope is not None:
            self._scope.cancel()
        for one in self._requests.take_all():
            self._tell(one.settle, self._lost(outcome_unknown=one.position < self._begun_total))

    def close_when_sent(self, reason: str) -> None:
        """Close once all frames are sent; frames queued meanwhile are sent as well."""
        if self._queued_total == self._sent_total:
            self.close(reason)
        else:
            self._last_words = reason

    async def run(self, stream: trio.abc.Stream, receive: Receive) -> None:
        """Serve the connection on `stream` until it ends, and close the stream.

        Commands that arrived in one read are handed to `receive` in one call, up to the limit;
        replies to our own requests are not among them. An exception of `receive` ends the
        connection.
        """
        try:
            if self._close_error is None:
                async with trio.open_nursery() as nursery:
                    self._scope = nursery.cancel_scope
                    self._descriptor = plain_descriptor(stream)
                    self._receive = receive
                    self._heard_at = self._clock()
                    nursery.start_soon(self._write, stream)
                    await self._read(stream)
                    nursery.cancel_scope.cancel()
        finally:
            self.close(ENDED_HERE)
            self._descriptor = NO_DESCRIPTOR
            if self._has_peer_ended or not (self._kept or self.unsent_bytes):
                end_in_order(stream)
            await trio.aclose_forcefully(stream)

    async def _read(self, stream: trio.abc.Stream) -> None:
        """Read until the peer closes, fails or sends bytes that are no frame."""
        if self._client_work is not None and self._descriptor != NO_DESCRIPTOR:
            self._watch()
            await trio.sleep_forever()  # until `close`
        while not self.is_closed:
            try:
                if self._descriptor != NO_DESCRIPTOR:
                    data = await read_some(self._descriptor, self._wanted)
                else:
                    data = bytes(await stream.receive_some(self._wanted))
            except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
                self.close(f"receiving failed: {broken(error)}")
                return
            self._take(data)
            self._stand_in_line()
            while self._is_in_line or self._is_paused:
                await self._taken.park()

    def _watch(self) -> None:
        """Have `client_work` call `_readable`, if it reads for this connection."""
        if self._is_watched or self._client_work is None or self._descriptor == NO_DESCRIPTOR:
            return
        self._is_watched = True
        self._client_work.watch(self._descriptor, self._readable)

    def _unwatch(self) -> None:
        if self._is_watched and self._client_work is not None:
            self._is_watched = False
            self._client_work.unwatch(self._descriptor)

    def _readable(self) -> None:
        self._is_readable = True
        self._stand_in_line()

    def _stand_in_line(self) -> None:
        """Take turns until there is nothing to do or the peer must take some bytes first."""
        if self._is_in_line or self._receive is None:
            return
        self._is_in_line = True
        if self._client_work is None:
            self.work(math.inf)
        else:
            self._client_work.add(self)

    def work(self, until: float) -> bool:
        """Do a part of the work for the peer. Implements `remoting.net.client_work.Work`."""
        self._turn_ends = until
        try:
            while self._work_some(until):
                if now() >= until:
                    return True
        except FrameError as error:
            # The connection keeps the error. Its traceback and context would keep this frame, and
            # with it all bytes read, until the next garbage collection.
            error.__traceback__ = error.__context__ = None
            self.close(error)
        except Exception as error:
            _log.exception("serving %s failed; its connection is closed", self.peer)
            self.close(f"serving it failed: {error!r}")
        finally:
            self._turn_ends = math.inf
        self._is_in_line = False
        if not self._is_paused:
            self._taken.unpark_all()
        return False

    def _work_some(self, until: float) -> bool:
        """Do one step; return whether there may be another one."""
        if self._close_error is not None:
            return False
        if self._steps:
            if not take_steps(self._steps[0], until):
                self._steps.popleft()
            return True
        self._is_paused = self._must_pause()
        if self._is_paused:
            self._unwatch()
            return False
        if not self._commands:
            if self._decoder.has_more:
                self._decode(b"")
            elif self._decoder.error is not None:
                raise self._decoder.error
            elif self._is_readable:
                self._is_readable = False
                self._read_now()
            else:
                self._watch()
                return False
        if self._commands:
            self._hand_over()
        return True

    def _read_now(self) -> None:
        try:
            data = read_now(self._descriptor, self._wanted)
        except OSError as error:
            self.close(f"receiving failed: {error}")
            return
        if data is not None:
            self._take(data)

    def _take(self, data: bytes) -> None:
        """Take bytes that were read, empty at the end of the stream."""
        if not data:
            self._has_peer_ended = True
            self.close("the peer closed it")
            return
        self.last_activity = self._heard_at = self._clock()
        self._owes_since = math.inf
        filled = len(data) == self._wanted
        try:
            self._decode(data)
        except FrameError as error:
            error.__traceback__ = error.__context__ = None
            if isinstance(error, ProtocolDiffers) and error.answer:
                self.send_frame(error.answer)  # a plain connection takes it at once
            self.close(error)
        # A large frame takes few reads; many small ones are not read ahead.
        is_large = filled and not self._decoder.has_more
        self._wanted = _MANY_BYTES if is_large else _RECEIVE_BYTES

    def _decode(self, data: bytes) -> None:
        decoder = self._decoder
        before = decoder.buffered_bytes + len(data)
        decoded = decoder.feed(data)
        after = decoder.buffered_bytes
        if decoded or after != self._partial_bytes:
            self._note_partial(after, bool(decoded))
            self._has_decoded = self._has_decoded or bool(decoded)
        self._commands = self._requests_among(decoded)
        if self._commands and self._held is not None:
            self._keep(self._commands, before - after)

    def _hand_over(self) -> None:
        """Hand over commands that came together; their immediate answers leave together."""
        commands, receive = self._commands, self._receive
        assert receive is not None
        if len(commands) == 1:
            taken = receive(self, commands)
        else:
            self.gather()
            try:
                taken = receive(self, commands)
            finally:
                self.write_gathered()
        self._commands = commands[taken:] if taken < len(commands) else []

    def _keep(self, commands: Sequence[Command], count: int) -> None:
        """Count `count` bytes of requests until their replies are sent; each has an equal share."""
        kept, share, before = self._kept, count // len(commands), self._kept_bytes
        for command in commands:
            if not command.flag & ONEWAY_FLAG:
                kept[command.opaque] = kept.get(command.opaque, 0) + share
                self._kept_bytes += share
        self._count_held(self._kept_bytes - before)

    def _release(self, share: int) -> None:
        """Release the bytes of a request that was answered."""
        if share:
            self._kept_bytes -= share
            self._count_held(-share)
            if self._is_paused:
                self._go_on_reading()

    def _note_partial(self, partial_bytes: int, completed: bool) -> None:
        """Note the size of an incomplete frame, and when its reading began."""
        if completed or not self._partial_bytes:
            self._partial_since = self.last_activity
        grown = partial_bytes - self._partial_bytes
        if grown and not self.is_closed:
            self._partial_bytes = partial_bytes
            self._count_held(grown)

    def _must_pause(self) -> bool:
        """Return whether the peer must take some bytes before more is read or handed over.

        Requests that were decoded but not handed over are among those kept, and must not wait for
        themselves.
        """
        waiting = self._queued_total - self._sent_total
        if not self._commands:
            waiting += self._kept_bytes
        if waiting > self._limits.pause_unsent_bytes:
            return True
        return waiting > _TIGHT_PAUSE_BYTES and self._held is not None and self._held.is_tight

    def _go_on_reading(self) -> None:
        """Resume if the peer has taken enough bytes."""
        if self._is_paused and not self._must_pause():
            self._is_paused = False
            self._stand_in_line()

    def _count_held(self, count: int) -> None:
        if self._held is not None:
            self._held.add(count)

    async def _write(self, stream: trio.abc.Stream) -> None:
        queue = self._queue
        try:
            while True:
                while not queue:
                    if self._last_words is not None:
                        self.close(self._last_words)
                    await self._wake.park()
                parts = [queue.popleft()]
                size = len(parts[0])
                while queue and size < _SEND_BYTES:
                    parts.append(queue.popleft())
                    size += len(parts[-1])
                self._begun_total += size
                if size <= _SEND_BYTES:
                    await stream.send_all(b"".join(parts))
                    self._note_sent(size)
                else:
                    await self._send_pieces(stream, memoryview(b"".join(parts)))
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            self.close(f"sending failed: {broken(error)}")

    async def _send_pieces(self, stream: trio.abc.Stream, data: memoryview) -> None:
        """Send long data in pieces, so that the peer's progress is noticed."""
        for at in range(0, len(data), _SEND_BYTES):
            piece = data[at : at + _SEND_BYTES]
            await stream.send_all(piece)
            self._note_sent(len(piece))

    def _note_sent(self, count: int) -> None:
        """Note that the peer has taken `count` bytes."""
        self._sent_total += count
        self.last_activity = self._unsent_since = self._clock()
        if self._held is not None and self._close_error is None:
            self._held.add(-count)
        self._go_on_reading()
        while self._then and self.unsent_bytes <= self._limits.pause_unsent_bytes:
            self._call(self._then.popleft())

    def _call(self, then: Callable[[], None]) -> None:
        """Call `then`; its error must not end other connections."""
        try:
            then()
        except Exception:
            _log.exception("a late answer to %s failed", self.peer)

    def _requests_among(self, commands: list[Command]) -> list[Command]:
        """Settle our requests whose replies are among `commands`; return the other commands."""
        for command in commands:
            if command.flag & RESPONSE_FLAG:
                break
        else:
            return commands
        requests: list[Command] = []
        for command in commands:
            if not command.flag & RESPONSE_FLAG:
                requests.append(command)
                continue
            waiting = self._requests.take(command.opaque)
            if waiting is None:
                _log.debug("%s answered %d, which no request waits for", self.peer, command.opaque)
            else:
                self._tell(waiting.settle, command)
        return requests

    def _lost(self, *, outcome_unknown: bool) -> RemotingError:
        """Return the error of a request on this closed connection; a new one for each."""
        error = self._close_error
        if isinstance(error, ConnectFailed):
            return ConnectFailed(error.address, error.reason)
        reason = error.reason if isinstance(error, ConnectionClosed) else str(error)
        return ConnectionClosed(
            str(self.peer),
            reason,
            outcome_unknown=outcome_unknown,
            is_another_protocol=isinstance(error, FrameError) and not self._has_decoded,
        )

    def _tell(self, settle: Settle, result: Command | RemotingError) -> None:
        """Call `settle`; its error must not end other connections."""
        try:
            settle(result)
        except Exception:
            _log.exception("a callback for a reply of %s failed", self.peer)

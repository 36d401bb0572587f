"""The time limits of a connection. Pure."""

import math

from proxy.http2.limits import Limits


class WatchedTimes:
    """When a peer is late with something.

    Args:
        limits: the times.
        now: when the connection began.

    Attributes:
        is_draining: the peer has not yet been told which stream is the last.
    """

    __slots__ = (
        "_asked_at",
        "_block_since",
        "_drain_at",
        "_frame_since",
        "_heard_at",
        "_idle_since",
        "_limits",
        "_preface_at",
    )

    def __init__(self, limits: Limits, now: float) -> None:
        self._limits = limits
        self._heard_at = self._idle_since = now
        self._preface_at = now + limits.preface_s
        self._frame_since = self._block_since = self._drain_at = self._asked_at = math.inf

    def heard(self, now: float) -> None:
        """Note that bytes came."""
        self._heard_at = now
        self._asked_at = math.inf

    def settled(self) -> None:
        """Note the peer's settings."""
        self._preface_at = math.inf

    def frame(self, is_incomplete: bool, has_ended: bool, now: float) -> None:
        """Note whether a part of a frame waits for its rest, and whether one before it ended."""
        if not is_incomplete:
            self._frame_since = math.inf
        elif has_ended or self._frame_since == math.inf:
            self._frame_since = now

    def block(self, is_incomplete: bool, now: float) -> None:
        """Note that a block of headers waits for its continuation, or has ended."""
        self._block_since = now if is_incomplete else math.inf

    def busy(self) -> None:
        self._idle_since = math.inf

    def idle(self, now: float) -> None:
        """Note that the last stream has ended."""
        self._idle_since = now

    def drain(self, now: float) -> None:
        self._drain_at = now + self._limits.drain_notice_s

    def drained(self) -> None:
        self._drain_at = math.inf

    @property
    def is_draining(self) -> bool:
        return self._drain_at != math.inf

    def late(self, now: float) -> str | None:
        """Return what the peer is late with."""
        limits = self._limits
        if now >= self._preface_at:
            return f"no settings in {limits.preface_s:g} s"
        if now >= self._block_since + limits.headers_s:
            return f"headers that were not ended in {limits.headers_s:g} s"
        if now >= self._frame_since + limits.frame_s:
            return f"a frame that was not ended in {limits.frame_s:g} s"
        if now >= self._asked_at + limits.ping_answer_s:
            return f"no answer to a ping in {limits.ping_answer_s:g} s"
        return None

    def take_drain(self, now: float) -> bool:
        """Return whether the peer has had time to notice the drain."""
        return now >= self._drain_at

    def is_idle(self, now: float) -> bool:
        return now >= self._idle_since + self._limits.idle_s

    def take_silence(self, now: float) -> bool:
        """Return whether the peer is to be asked for a sign of life; the answer is awaited."""
        is_due = (
            self._asked_at == self._idle_since == math.inf
            and now >= self._heard_at + self._limits.silence_s
        )
        if is_due:
            self._asked_at = now
        return is_due

    def next_at(self, has_streams: bool) -> float:
        """Return the first time at which something is late or due."""
        limits = self._limits
        silence_at = self._heard_at + limits.silence_s if has_streams else math.inf
        return min(
            self._preface_at,
            self._block_since + limits.headers_s,
            self._frame_since + limits.frame_s,
            self._asked_at + limits.ping_answer_s if self._asked_at != math.inf else silence_at,
            self._drain_at,
            self._idle_since + limits.idle_s,
        )

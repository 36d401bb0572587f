"""The caller's side of an introduction: it proves who it is, if it is asked."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable

from dledger.network.tls import Stream
from dledger.wire.frame import Frame
from dledger.wire.handshake import Hello, Refused, check_welcome
from dledger.wire.proof import NONCE_BYTES, Shown, encode_proof


async def welcome_of(
    stream: Stream,
    hello: Hello,
    shown: Shown | None,
    read: Callable[[], Awaitable[list[Frame]]],
) -> list[Frame]:
    """Return the frames that begin with a welcome, after `hello` was sent.

    `shown`: what to prove if the other side asks; `read` returns one frame or more. Raises Refused,
    MessageMalformed.
    """
    frames = await read()
    try:
        check_welcome(frames[0])
    except Refused as error:
        if shown is None or not error.challenge:
            raise
        nonce = os.urandom(NONCE_BYTES)
        await stream.send_all(encode_proof(hello, shown, error.challenge, nonce))
        frames = await read()
        check_welcome(frames[0])
    return frames

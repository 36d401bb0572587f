"""What arrives is cut into frames, some at a time."""

import trio

from dledger.network.conversation import CUT_FRAMES, Conversation
from dledger.wire.frame import Frame, encode_frame


class Bytes:
    """A stream whose bytes are all there."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    async def receive_some(self, most: int) -> bytes:
        await trio.lowlevel.checkpoint()
        taken, self.data = self.data[:most], self.data[most:]
        return taken


async def test_frames_that_come_in_one_read_are_cut_some_at_a_time() -> None:
    sent = [encode_frame([number]) for number in range(3 * CUT_FRAMES)]
    sent.insert(len(sent) // 2, encode_frame(["long"], bytes(1 << 20)))
    conversation = Conversation(Bytes(b"".join([encode_frame([-1]), *sent])))  # type: ignore[arg-type]
    parts = list[list[Frame]]()
    assert await conversation.next_frame() == Frame([-1], b"")
    conversation.welcomed()
    while await conversation.wait():
        parts.append(list(conversation.cut()))
    assert max(map(len, parts)) == CUT_FRAMES
    assert [encode_frame(frame.header, frame.payload) for part in parts for frame in part] == sent

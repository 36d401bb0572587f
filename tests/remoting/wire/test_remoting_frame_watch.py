"""What passes by in any pieces is seen as the decoder sees it, without the bodies."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from remoting.wire.command import Command, HeaderFormat
from remoting.wire.frame import FrameDecoder, encode_command
from remoting.wire.frame_watch import MAX_KEPT_BYTES, FrameWatch

commands = st.builds(
    Command,
    code=st.integers(0, 50),
    fields=st.dictionaries(st.text("abc", min_size=1, max_size=3), st.text("xyz"), max_size=3),
    body=st.binary(max_size=300),
    opaque=st.integers(0, 1 << 30),
    flag=st.integers(0, 3),
    header_format=st.sampled_from(HeaderFormat),
)


@given(st.lists(commands, max_size=8), st.lists(st.integers(1, 400), max_size=30))
def test_frames_in_any_pieces_are_seen_as_the_decoder_sees_them(
    sent: list[Command], cuts: list[int]
) -> None:
    data = b"".join(map(encode_command, sent))
    watch, decoder = FrameWatch(kept_code=34), FrameDecoder()
    seen: list[Command] = []
    whole: list[Command] = []
    for cut in [*cuts, len(data)]:
        piece, data = data[:cut], data[cut:]
        seen += watch.pass_by(piece)
        whole += decoder.feed(piece)
        assert watch.is_between_frames == (decoder.buffered_bytes == 0)
        assert len(seen) >= len(whole)  # a header is seen before its body has come
    heads = [(one.code, one.opaque, one.flag, one.fields) for one in whole]
    assert [(one.code, one.opaque, one.flag, one.fields) for one in seen] == heads
    assert not any(one.body for one in seen)
    kept = [one for one in sent if one.code == 34 and not one.is_response]
    assert watch.kept == (encode_command(kept[-1]) if kept else None)


@given(st.binary(max_size=200))
def test_what_is_no_frame_is_lost_and_nothing_is_raised(junk: bytes) -> None:
    watch, decoder = FrameWatch(), FrameDecoder()
    watch.pass_by(junk)
    try:
        decoder.feed(junk)
    except Exception:
        assert watch.is_lost
    assert not (watch.is_lost and watch.is_between_frames)


def test_a_long_request_is_not_kept() -> None:
    watch = FrameWatch(kept_code=34)
    watch.pass_by(encode_command(Command(34, body=b"short")))
    kept = watch.kept
    watch.pass_by(encode_command(Command(34, body=bytes(MAX_KEPT_BYTES))))
    assert watch.kept == kept
    assert watch.is_between_frames

"""The limits of a connection. Pure."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of each connection. What goes beyond one ends the call or the connection, with a text.

    Rates are allowances: a burst at once, then a number each second.
    """

    # Calls in flight. Clients of C# have all their streams on one connection.
    max_streams: int = 1024
    # Calls whose tasks run, those included that were reset and still clean up.
    max_calls: int = 2048
    # A message of RocketMQ has a body of 4 MiB at most, and some KiB around it.
    max_message_bytes: int = 5 * 1024 * 1024
    # What a stream may send before it is read. A connection's is that of sixteen such streams.
    stream_window_bytes: int = 1024 * 1024
    connection_window_bytes: int = 16 * 1024 * 1024
    # Received and not yet read, incomplete messages included: these are taken beyond the windows,
    # because a message may be larger than one.
    max_held_bytes: int = 64 * 1024 * 1024
    # How long an incomplete message waits while all connections together hold too much to give it a
    # window, before the connection with the oldest progress ends.
    room_s: float = 10.0
    # The value that HTTP/2 begins with, which every peer takes.
    max_frame_bytes: int = 16 * 1024
    # Of one block of headers: encoded, in how many frames, and decoded (RFC 9113, 6.5.2). Java's
    # server of gRPC has 8 KiB; a signature and all names of RocketMQ take 1 KiB.
    max_block_bytes: int = 16 * 1024
    max_continuations: int = 8
    max_header_list_bytes: int = 16 * 1024
    # Bytes for the peer before data wait for it to take some, and before nothing more is read.
    max_unsent_bytes: int = 128 * 1024
    max_unsent_answers_bytes: int = 256 * 1024

    # Resets by the client, and those that its errors cause: CVE-2023-44487, CVE-2025-8671. A client
    # that ends cancels all its calls at once.
    reset_burst: int = 2048
    resets_per_s: float = 100.0
    # C-core pings to estimate the bandwidth, up to once a round trip.
    ping_burst: int = 200
    pings_per_s: float = 100.0
    # A client sends settings once, and few change them later.
    settings_burst: int = 32
    settings_per_s: float = 4.0
    # Frames that carry nothing: empty data, priorities, unknown types.
    idle_frame_burst: int = 2048
    idle_frames_per_s: float = 200.0

    # From the connection's first byte to the client's settings.
    preface_s: float = 10.0
    # For the rest of a frame, and of a block of headers, once it has begun.
    frame_s: float = 30.0
    headers_s: float = 10.0
    # The peer must take something in this time: of what is written, and of each answer's windows.
    # In tiny windows it must take `min_taken_bytes`.
    unread_s: float = 30.0
    min_taken_bytes: int = 1024
    # A connection without a call is closed after this: the value of RocketMQ's proxy.
    idle_s: float = 120.0
    # A peer with open calls that is silent for so long gets a ping, and must answer it.
    silence_s: float = 60.0
    ping_answer_s: float = 20.0
    # How long a peer may take to notice that the connection drains: a round trip.
    drain_notice_s: float = 1.0
    # After the last frame the peer's bytes are read for so long, so that it can read that frame.
    linger_s: float = 1.0

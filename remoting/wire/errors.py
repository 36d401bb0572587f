"""What can be wrong with bytes, fields and bodies. Each error has one line that says what to do."""


class RemotingError(Exception):
    """Root of every error this package raises on purpose."""


class FrameError(RemotingError):
    """Bytes that cannot be a frame. The connection they came from must be closed."""


class FrameTooLarge(FrameError):
    """A frame, or its header, is longer than allowed.

    Attributes:
        size_bytes: the length that was announced.
        limit_bytes: the length that is allowed.
        part: what is too long, "frame" or "header".
    """

    def __init__(self, size_bytes: int, limit_bytes: int, part: str = "frame") -> None:
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes
        self.part = part
        super().__init__(
            f"{part} of {size_bytes} bytes is over the limit of {limit_bytes} bytes: "
            "send smaller messages or smaller batches"
        )


class ProtocolDiffers(FrameError):
    """The peer speaks another protocol, as its first bytes say.

    Attributes:
        protocol: its name.
    """

    def __init__(self, protocol: str, advice: str) -> None:
        self.protocol = protocol
        super().__init__(f"the peer speaks {protocol}, not RocketMQ's remoting: {advice}")


class FrameMalformed(FrameError):
    """Lengths that contradict one another, an unknown header type, or a header that has no sense.

    Attributes:
        reason: what is wrong, without the advice.
    """

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"malformed frame ({reason}): check that the peer speaks remoting")


class BodyMalformed(RemotingError):
    """The JSON (or compressed) body of a request or reply does not have the shape it must have.

    Attributes:
        body_name: which body it is, such as "heartbeat".
        reason: what is wrong with it.
    """

    def __init__(self, body_name: str, reason: str) -> None:
        self.body_name = body_name
        self.reason = reason
        super().__init__(f"{body_name} body: {reason}; send it as RocketMQ clients do")


class FieldMissing(RemotingError):
    """A request lacks a field it must have, or the field cannot be read as its type.

    Attributes:
        field: the name of the field.
        value: what was sent, or None when there was nothing.
    """

    def __init__(self, field: str, value: str | None = None) -> None:
        self.field = field
        self.value = value
        if value is None:
            text = f"the custom field <{field}> is null: send it"
        else:
            text = f"the custom field <{field}> cannot be {value!r:.80}: send a value of its type"
        super().__init__(text)

"""The errors of bytes, fields and bodies. Each has one line that says what to do."""

from dledger.declared_error import DeclaredError


class RemotingError(DeclaredError):
    """Root of every error this package raises on purpose."""


class FrameError(RemotingError):
    """Bytes that cannot be a frame. The connection they came from must be closed."""


class FrameTooLarge(FrameError):
    """A frame, or its header, is longer than allowed.

    Attributes:
        size_bytes: the announced length.
        limit_bytes: the allowed length.
        part: "frame" or "header".
    """

    size_bytes: int
    limit_bytes: int
    part: str = "frame"
    _template = (
        "{part} of {size_bytes} bytes is over the limit of {limit_bytes} bytes: send smaller "
        "messages or smaller batches"
    )


class ProtocolDiffers(FrameError):
    """The peer speaks another protocol, according to its first bytes.

    Attributes:
        answer: what its programs understand as a refusal; empty where nothing is.
    """

    protocol: str
    advice: str
    answer: bytes = b""

    def _text(self) -> str:
        return f"the peer speaks {self.protocol}, not RocketMQ's remoting: {self.advice}"


class FrameMalformed(FrameError):
    """Lengths that contradict one another, an unknown header type, or a header without sense.

    Attributes:
        reason: what is wrong, without the advice.
    """

    reason: str
    _template = "malformed frame ({reason}): check that the peer speaks remoting"


class BodyMalformed(RemotingError):
    """The JSON (or compressed) body of a request or reply does not have the required shape.

    Attributes:
        body_name: the kind of body, such as "heartbeat".
        reason: what is wrong with it.
    """

    body_name: str
    reason: str
    _template = "{body_name} body: {reason}; send it as RocketMQ clients do"


class FieldMissing(RemotingError):
    """A request lacks a required field, or the field cannot be read as its type.

    Attributes:
        field: the name of the field.
        value: what was sent, or None if it was absent.
    """

    field: str
    value: str | None = None

    def _text(self) -> str:
        field = f"the custom field <{self.field}>"
        if self.value is None:
            return f"{field} is null: send it"
        return f"{field} cannot be {self.value!r:.80}: send a value of its type"

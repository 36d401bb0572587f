"""The status in an answer: what RocketMQ 5's clients look at, instead of gRPC's own.

Source: RocketMQ's proxy, ResponseBuilder and GrpcValidator.
"""

from collections.abc import Mapping
from typing import Final

from dledger.declared_error import DeclaredError
from dledger_mq.errors import (
    MessagingError,
    NameServersUnreachable,
    NoBrokerLeads,
    NoMaster,
    RequestRefused,
    RouteNotFound,
)
from proxy.wire.messages_pb2 import Code, Status
from remoting.wire.codes import ResponseCode
from remoting.wire.errors import RemotingError

# What a broker's answer means to a client. Every other code is INTERNAL_SERVER_ERROR: a client
# takes an unknown one for a fault of its own.
_OF_REMOTING: Final[Mapping[int, Code]] = {
    ResponseCode.SYSTEM_BUSY: Code.TOO_MANY_REQUESTS,
    ResponseCode.FLOW_CONTROL: Code.TOO_MANY_REQUESTS,
    ResponseCode.POLLING_FULL: Code.TOO_MANY_REQUESTS,
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: Code.NOT_IMPLEMENTED,
    ResponseCode.FLUSH_DISK_TIMEOUT: Code.MASTER_PERSISTENCE_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: Code.SLAVE_PERSISTENCE_TIMEOUT,
    ResponseCode.MESSAGE_ILLEGAL: Code.BAD_REQUEST,
    ResponseCode.SLAVE_NOT_AVAILABLE: Code.HA_NOT_AVAILABLE,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: Code.CONSUMER_GROUP_NOT_FOUND,
    ResponseCode.TOPIC_NOT_EXIST: Code.TOPIC_NOT_FOUND,
    ResponseCode.SUBSCRIPTION_PARSE_FAILED: Code.ILLEGAL_FILTER_EXPRESSION,
    ResponseCode.NO_PERMISSION: Code.UNAUTHORIZED,
    ResponseCode.LMQ_QUOTA_EXCEEDED: Code.LITE_TOPIC_QUOTA_EXCEEDED,
    ResponseCode.LITE_SUBSCRIPTION_QUOTA_EXCEEDED: Code.LITE_SUBSCRIPTION_QUOTA_EXCEEDED,
}


class Refused(DeclaredError):
    """A call is answered with this status.

    Attributes:
        code: one of `Code`.
        text: what is wrong, and what to do.
    """

    code: int
    text: str
    _template = "{text}"

    @property
    def status(self) -> Status:
        return Status(code=Code.Name(self.code), message=str(self))


OK: Final = Status(code=Code.OK, message="OK")


def refused_by(error: MessagingError | RemotingError) -> Refused:
    """Return what to answer when brokers or name servers could not do what was asked."""
    match error:
        case RequestRefused():
            code = _OF_REMOTING.get(error.code, Code.INTERNAL_SERVER_ERROR)
            return Refused(code, error.remark or f"the broker answered {error.code}")
        case NoBrokerLeads() | NoMaster() | NameServersUnreachable():
            return Refused(Code.HA_NOT_AVAILABLE, str(error))
        case RouteNotFound():
            return Refused(Code.TOPIC_NOT_FOUND, str(error))
        case RemotingError():
            return Refused(Code.PROXY_TIMEOUT, str(error))
        case _:
            return Refused(Code.INTERNAL_SERVER_ERROR, str(error))


def common(statuses: list[Status]) -> Status:
    """Return the status of an answer with several entries."""
    codes = {status.code for status in statuses}
    if len(codes) == 1:
        return statuses[0]
    return Status(code=Code.MULTIPLE_RESULTS, message="the entries have statuses of their own")

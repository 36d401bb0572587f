"""Request and reply."""

from broker.replies.askers import ASKERS
from broker.replies.processor import ReplyProcessor
from broker.replies.question_sends import QuestionSends, StrayReplies
from broker.sends.request import send_needs
from broker.sends.special_sends import SPECIAL_SENDS
from broker.serving.parts import Parts
from broker.serving.service import Handler, Service
from broker.settings.user_shares import USER_SHARES
from remoting.wire.codes import RequestCode


def service(parts: Parts) -> Service:
    askers, config = parts[ASKERS], parts.config
    parts[SPECIAL_SENDS].add(QuestionSends(askers, parts[USER_SHARES], config.cluster))
    parts[SPECIAL_SENDS].add(StrayReplies())
    processor = ReplyProcessor(parts)
    return Service(
        handlers={
            RequestCode.SEND_REPLY_MESSAGE: Handler(processor.reply, send_needs),
            RequestCode.SEND_REPLY_MESSAGE_V2: Handler(processor.reply, send_needs),
        },
        end_term=lambda _refusal: askers.clear(),
        dropped=askers.drop,
    )

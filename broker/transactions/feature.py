"""Transactional messages."""

from collections.abc import Mapping

from broker.retention.kept_back import KEPT_BACK
from broker.sends.special_sends import SPECIAL_SENDS
from broker.serving.parts import Parts
from broker.serving.service import Handler, Service
from broker.topics.needs import OPERATE
from broker.transactions.checks import CHECKS
from broker.transactions.ends import ENDS
from broker.transactions.half_sends import HALF_SENDS
from broker.transactions.processor import TransactionProcessor
from broker.transactions.state import TRANSACTIONS
from remoting.wire.codes import RequestCode


def service(parts: Parts) -> Service:
    transactions, ends, checks = parts.state[TRANSACTIONS], parts[ENDS], parts[CHECKS]
    parts[SPECIAL_SENDS].add(parts[HALF_SENDS])
    parts[KEPT_BACK].add(checks.move_before)
    processor = TransactionProcessor(parts)

    def begin_term() -> None:
        ends.begin_term()
        checks.begin_term()

    def figures() -> Mapping[str, str]:
        return {
            "dledgerTransactionsCommitted": str(transactions.committed),
            "dledgerTransactionsGivenUp": str(transactions.given_up),
            "dledgerTransactionsOpen": str(len(transactions.halves)),
            "dledgerTransactionsRolledBack": str(transactions.rolled_back),
        }

    return Service(
        handlers={
            RequestCode.END_TRANSACTION: Handler(processor.end, processor.end_needs),
            RequestCode.RESUME_CHECK_HALF_MESSAGE: Handler(
                processor.resume, OPERATE, is_audited=True
            ),
        },
        begin_term=begin_term,
        tick=checks.tick,
        figures=figures,
    )

"""Copies orders from a topic into a log, until SIGTERM or Ctrl-C.

    python service_orders.py

A message is acknowledged when its entry is in the log. So after a crash some come again: each entry
begins with the id of its message, by which readers know it.
"""

import os
import signal

import dledger
import dledger.blocking
import dledger_mq
import dledger_mq.blocking

PEERS = os.environ.get("ORDERS_LOG", "127.0.0.1:20911")
NAMESERVERS = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")
ENDING = (signal.SIGTERM, signal.SIGINT)


def serve() -> None:
    """Run until a signal comes."""
    # Blocked before any thread begins, so that all threads leave these signals to sigwait.
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    with dledger.blocking.connect(PEERS, group="orders") as log:

        def copy(messages: list[dledger_mq.ReceivedMessage]) -> None:
            """In a thread: an error here has the message delivered again."""
            for message in messages:
                log.append(f"{message.message_id} ".encode() + message.body)

        consumer = dledger_mq.PushConsumer(
            "copiers",
            "Orders",
            dledger_mq.blocking.listener(copy),
            nameservers=NAMESERVERS,
            consume_from=dledger_mq.ConsumeFrom.FIRST,
        )
        with dledger_mq.blocking.open_push_consumer(consumer) as running:
            running.ready()
            print("copies orders", flush=True)
            signal.sigwait(ENDING)
        # Here the calls of `copy` have ended, and what they did is acknowledged.
    print("has ended in order", flush=True)


if __name__ == "__main__":
    serve()

"""Answers administrators: run-time figures, single messages, and the progress of members.

Source: RocketMQ's AdminBrokerProcessor and QueryMessageProcessor.
"""

from collections.abc import Callable, Sequence

from broker.errors import RequestRefused
from broker.serving.needs import Action, Need
from broker.serving.origin import Origin
from broker.serving.parts import Parts
from broker.store.message_needs import message_needs
from broker.store.message_reader import MESSAGE_READER
from dledger import Status
from remoting.bodies.table import encode_table
from remoting.wire.command import Command
from remoting.wire.loose_json import JsonValue, compact_json


class AdminProcessor:
    """Answers requests of `mqadmin` and `dledger-mq` about the broker itself."""

    def __init__(self, parts: Parts, status: Callable[[], Status]) -> None:
        self._status = status
        self._peers = parts.config.peers
        self._reader = parts[MESSAGE_READER]
        self._figures = parts.figures

    def runtime_info(self, _origin: Origin, command: Command) -> Command:
        """Return the run-time figures (28), all as text."""
        return command.reply(body=encode_table(self._figures()))

    def view_needs(self, command: Command) -> Sequence[Need]:
        record = self._reader.record_at(command.integer("offset"))
        return message_needs(record, Action.SUB, Action.GET)

    def view_message(self, _origin: Origin, command: Command) -> Command:
        """Return the stored message at a log position (33). Raises RequestRefused (1): there is
        none.
        """
        position = command.integer("offset")
        record = self._reader.record_at(position)
        if record is None:
            raise RequestRefused.failed(f"can not find message by the offset, {position}")
        return command.reply(body=record)

    def replication(self, _origin: Origin, command: Command) -> Command:
        """Return the progress of the group's members (907), as mqadmin's haStatus shows it.

        The leader reports the log of each other member, a follower its leader. Offsets are indexes
        of entries. Source: RocketMQ's HARuntimeInfo.
        """
        status = self._status()
        leads = status.role.lower() == "leader"
        rows: list[JsonValue] = []
        for name, peer in sorted(status.peers.items()) if leads else []:
            has = -1 if peer.match_index is None else peer.match_index
            rows.append(
                {
                    "addr": self._peers.get(name, name),
                    "diff": status.last_index - has,
                    "inSync": has >= status.committed,
                    "slaveAckOffset": has,
                    "transferFromWhere": has if peer.next_index is None else peer.next_index,
                    "transferredByteInSecond": 0,
                }
            )
        leader = status.leader or ""
        body: dict[str, JsonValue] = {
            "haClientRuntimeInfo": {
                "activated": not leads,
                "lastReadTimestamp": 0,
                "lastWriteTimestamp": 0,
                "masterAddr": self._peers.get(leader, leader),
                "masterFlushOffset": status.committed,
                "maxOffset": status.last_index,
                "transferredByteInSecond": 0,
            },
            "haConnectionInfo": rows,
            "inSyncSlaveNums": sum(isinstance(row, dict) and bool(row["inSync"]) for row in rows),
            "master": leads,
            "masterCommitLogMaxOffset": status.last_index,
        }
        return command.reply(body=compact_json(body).encode())

"""Answers how far the members of the group are (907), as mqadmin's haStatus shows it.

Offsets are indexes of entries in the group's log. Source: RocketMQ's HARuntimeInfo.
"""

from collections.abc import Callable, Mapping

from broker.serving.origin import Origin
from dledger import Status
from remoting.wire.command import Command
from remoting.wire.loose_json import JsonValue, compact_json


class Replication:
    """Tells about the members.

    Args:
        status: of this member, now.
        peers: the addresses of all members, by their names.
    """

    def __init__(self, status: Callable[[], Status], peers: Mapping[str, str]) -> None:
        self._status = status
        self._peers = peers

    def show(self, _origin: Origin, command: Command) -> Command:
        """The leader: how far each other member has the log. Another member: whom it follows."""
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

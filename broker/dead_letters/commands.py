"""The log's command that redrives a dead letter.

It follows the copy for the group or the topic. A copy of a dead letter that was redriven before is
refused together with it: so nothing is doubled by a leader that does not know the outcome of its
proposals, or by a client that asks again. No leader proposes such a copy.
"""

from dataclasses import dataclass
from typing import ClassVar, Final

from broker.dead_letters.runs import OffsetRuns
from broker.dead_letters.state import REDRIVEN
from broker.log.command_layout import Natural
from broker.log.entry import ATTACHED_VERSION
from broker.log.folded import EntryRefused, Folded
from broker.log.state import BrokerState, CommandType
from broker.topics.state import TOPICS
from dledger import Entry


@dataclass(frozen=True, slots=True)
class Redrive:
    """Follows a record: it is the copy of a dead letter.

    Attributes:
        topic: the dead letter topic.
        offset: of the dead letter in the queue.
        position: of the dead letter in the log; it must belong to the current topic of the name.
        begin: the offset at which the queue begins for this leader; earlier dead letters are gone.
    """

    kind: ClassVar[int] = 34
    since: ClassVar[int] = ATTACHED_VERSION

    topic: str
    queue_id: Natural
    offset: Natural
    position: Natural
    begin: Natural


def _redrive(
    state: BrokerState, _folded: Folded, command: Redrive, _entry: Entry
) -> EntryRefused | None:
    redriven = state[REDRIVEN]
    topic, queue_id, offset = command.topic, command.queue_id, command.offset
    if not state[TOPICS].existed(topic, command.position):
        return EntryRefused(f"a dead letter of topic {topic}, which was deleted")
    if redriven.has(topic, queue_id, offset) or offset < command.begin:
        return EntryRefused(f"dead letter {offset} of {topic}/{queue_id} was taken already")
    runs = redriven.runs.setdefault(topic, {}).setdefault(queue_id, OffsetRuns())
    runs.add_below(command.begin)
    if offset not in runs:
        runs.add(offset)
    redriven.redriven_letters += 1
    return None


REDRIVE: Final = CommandType(Redrive, _redrive, is_attached=True)

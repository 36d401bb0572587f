"""The log's command that delivers a dead letter once more.

It stands behind the copy that goes to the group or to the topic. A copy of a dead letter that was
delivered once more already is refused together with it: so a leader that does not know what became
of its proposals, and a client that asks again, double nothing. No leader proposes such a copy.
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
    """Behind a record: it is the copy of a dead letter.

    Attributes:
        topic: the dead letter topic.
        queue_id: its queue.
        offset: of the dead letter in the queue.
        position: of the dead letter in the log; of a topic that was made anew it is none.
        begin: the offset at which the queue begins for this leader; nobody can read what lies
            before it.
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

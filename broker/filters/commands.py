"""The log's command for filters."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Final

from broker.filters.state import FILTERS, GroupFilter
from broker.log.command_layout import Natural, Told
from broker.log.entry import ATTACHED_VERSION
from broker.log.folded import EntryRefused, Folded
from broker.log.state import BrokerState, CommandType
from broker.topics.state import TOPICS
from dledger import Entry


@dataclass(frozen=True, slots=True)
class PutFilter:
    """A group filters a topic by a condition.

    Attributes:
        condition: in SQL92.
        filter_version: a condition of a smaller one is older.
        max_filters: no condition is added if there are as many.
    """

    kind: ClassVar[int] = 20
    since: ClassVar[int] = ATTACHED_VERSION

    group: str
    topic: str
    condition: str
    filter_version: Annotated[Natural, Told(("version",))]
    max_filters: Natural


def _put(
    state: BrokerState, _folded: Folded, command: PutFilter, _entry: Entry
) -> EntryRefused | None:
    tables, key = state[FILTERS].tables, (command.group, command.topic)
    old = tables.get(key)
    if command.topic not in state[TOPICS].configs:
        return EntryRefused(f"a filter of topic {command.topic}, which does not exist")
    if old is None and not tables.has_room(command.max_filters):
        return EntryRefused(f"there are {len(tables)} filters: delete a group first")
    if old is None or command.filter_version >= old.version:
        tables[key] = GroupFilter(command.condition, command.filter_version)
    return None


PUT_FILTER: Final = CommandType(PutFilter, _put)

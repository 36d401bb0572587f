"""The state machine: it takes committed entries, changes the state, and returns index units.

Deterministic and total. An entry that no broker can have written is skipped on every member, and
its result says so. Only a command of a newer version stops the member.
"""

from collections.abc import Sequence

from broker.log.entry import EntryKind, is_record, kind_of
from broker.log.folded import EntryRefused, Folded
from broker.log.state import BrokerState
from dledger import Entry


def fold(state: BrokerState, entries: Sequence[Entry]) -> Folded:
    """Apply a run of entries to `state`.

    Raises EntryTooNew: a command of a newer broker; no later entry may be applied.
    """
    folded = Folded()
    add_result = folded.results.append
    fold_record = state.fold_record
    for entry in entries:
        refused: EntryRefused | None
        if is_record(entry.body):
            refused = fold_record(state, folded, entry)
        elif kind_of(entry.body) is EntryKind.COMMAND:
            refused = state.registry.fold(state, folded, entry, entry.body, is_attached=False)
        else:
            refused = EntryRefused("neither a message nor a command")
        if refused is not None:
            state.refused_entries += 1
            if is_record(entry.body):
                fold_record.pass_over(entry)
        add_result(refused)
    if entries:
        state.log_end = entries[-1].body_pos + len(entries[-1].body)
    return folded

"""Known traps of counting; docs/traps.md says which test stands for which."""

from __future__ import annotations

from dledger.core.messages import Phase, PushResponse
from tests.dledger.core.core_group import Group


def test_a_sync_of_older_entries_does_not_count_newer_ones_of_the_leader() -> None:
    # Entries 1 to 3 are on their way to the leader's disk when 4 to 6 are proposed. A follower has
    # all six. When the sync ends, a quorum has three of them.
    group = Group([[], [], []])
    leader = group.elect("n0")
    synced = group.propose("n0", 3)
    begun = leader.begin_sync()
    last = group.propose("n0", 3)
    leader.leaving(group.now)
    answer = PushResponse(leader.term, Phase.APPEND, ok=True, index=last, match=last)
    leader.replica.receive("n1", answer, group.now)
    assert leader.committed == synced - 3
    leader.replica.persisted(*begun, group.now)
    assert leader.committed == synced
    leader.sync(group.now)
    assert leader.committed == last

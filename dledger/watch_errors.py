"""The errors of watches, in the tree of `dledger.errors`."""

from __future__ import annotations

from dledger.errors import Rejected


class WatchesOff(Rejected):
    """The state machine reports no changes."""

    _template = (
        "the state machine of this group tells no changes: give that of every member an attribute "
        "`changes = dledger.Changes()`, and tell it what `apply` changes"
    )


class WatchInvalid(Rejected):
    """No watch can carry this path, or a value of the state machine."""

    retry_useless = True

    problem: str
    _template = "the watch is not possible: {problem}"


class WatchCompacted(Rejected):
    """No reachable member has the changes after `after` any more.

    `first` is the least index after which the member has all changes: read the state again, at that
    index or later, and watch after it. A state machine with a method `watched` spares its watchers
    that: they get its state.
    """

    retry_useless = True

    after: int
    first: int
    _template = (
        "the changes after entry {after} are not kept any more: read the state, and watch after "
        "entry {first} or a later one"
    )


class WatchTooLarge(Rejected):
    """The state under a path is more than one answer holds. `limit` is in the unit that it names.

    A watch that begins with `after` needs no state, and one of a narrower path needs less.
    """

    retry_useless = True

    path: str
    limit: int
    unit: str
    _template = (
        "the state under {path} is more than {limit} {unit}: watch a narrower path, or read the "
        "state by queries and watch after their index"
    )


class TooManyWatches(Rejected):
    """The member, or the connection (`where`), has as many watches as it may have."""

    watches: int
    where: str
    _template = "{watches} watches wait at {where} already: let some end, or ask another member"

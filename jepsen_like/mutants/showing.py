"""The seed from which a mistake shows soon, where it is not the first one.

A change of the product moves what a seed does. Then `jepsen-like simulate --seeded-bug NAME` with
more seeds names another one. Most mistakes in brokers are aimed at instead, so that nearly any seed
shows them: see `jepsen_like.simulation.broker.aims`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

MEMBERS_SHOW_AT: Final[Mapping[str, int]] = {
    "acknowledge-before-sync": 1,
    "answer-covers-later-reads": 6,
    "apply-before-durable": 4,
    "begins-by-silence": 50,
    "candidate-in-a-hurry": 0,
    "change-while-one-is-pending": 11,
    "clocks-beyond-bound": 30,
    "commit-older-term": 42,
    "commit-recorded-ahead-of-the-disk": 1,
    "commit-unverified": 10,
    "configuration-on-append": 7,
    "early-without-pre-vote": 17,
    "entries-take-the-reserve": 106,
    "failed-sync-ignored": 15,
    "flush-due-for-ever": 10,
    "folder-not-synced": 0,
    "follower-read-without-asking": 0,
    "full-disk-is-final": 37,
    "grown-group-forgotten": 231,
    "half-is-a-quorum": 0,
    "install-answer-lost-pins": 88,
    "install-drops-what-agrees": 7,
    "joint-decided-by-one-half": 23,
    "joint-phase-never-ends": 7,
    "known-committed-ignored": 23,
    "leader-counts-its-cache": 8,
    "leader-gives-up-early": 18,
    "learners-counted": 10,
    "lease-extended-by-a-stall": 3,
    "lease-from-answer": 112,
    "lease-ignores-drift": 264,
    "lease-kept-in-transfer": 25,
    "log-check-skipped": 3,
    "log-cut-before-the-snapshot": 28,
    "many-voters-at-once": 37,
    "mark-lost-in-a-power-cut": 0,
    "newcomers-are-believed": 84,
    "pieces-in-any-order": 151,
    "proof-without-a-commit": 1,
    "pushes-of-any-term": 47,
    "read-before-own-commit": 13,
    "read-served-before-it-is-applied": 0,
    "read-without-round": 349,
    "reads-never-end": 0,
    "removal-kept-secret": 88,
    "restored-folder-is-believed": 2,
    "room-is-never-found": 36,
    "session-results-not-in-snapshots": 7,
    "session-table-not-consulted": 4,
    "sign-believed-under-leases": 27,
    "snapshot-applied-from-the-log": 0,
    "snapshot-named-before-its-folder-is-synced": 7,
    "stall-taken-for-silence": 18,
    "torn-tail-kept": 3,
    "truncate-without-conflict": 0,
    "vote-forgotten": 0,
    "vote-not-durable": 0,
    "vote-twice": 0,
    "votes-counted-not-voters": 23,
    "wiped-member-counts": 1,
    "wiped-member-votes": 6,
}
HOSTS_SHOW_AT: Final[Mapping[str, int]] = {
    "appends-outlive-their-node": 4,
    "asked-by-address": 25,
    "lost-answer-is-certain": 7,
}
BROKERS_SHOW_AT: Final[Mapping[str, int]] = {
    "damaged-queues-served": 21,
    "file-before-the-first-unit-missing": 21,
    "files-of-another-state-believed": 10,
    "mended-files-believed": 52,
    "retention-drops-what-waits": 21,
}

"""The core's two tables of transitions, as tables and as pictures."""

from __future__ import annotations

from dledger.core.entry_dispatcher import PHASE_CHANGES
from dledger.core.member_state import ROLE_CHANGES
from docs._ext.message_tables import table
from docs._ext.state_diagram import Point, StateDiagram

_ROLE_PLACES = {
    "follower": Point(105, 150),
    "pre-candidate": Point(430, 45),
    "candidate": Point(640, 150),
    "leader": Point(430, 330),
}
_ROLE_BENDS = {
    ("follower", "pre-candidate"): 45.0,
    ("pre-candidate", "follower"): 30.0,
    ("pre-candidate", "candidate"): 25.0,
    ("candidate", "pre-candidate"): 35.0,
    ("candidate", "follower"): 85.0,
    ("follower", "candidate"): 12.0,
    ("candidate", "leader"): -20.0,
    ("leader", "follower"): 70.0,
}
_PHASE_PLACES = {
    "COMPARE": Point(120, 200),
    "TRUNCATE": Point(430, 50),
    "APPEND": Point(700, 200),
    "COMMIT": Point(430, 340),
    "INSTALL_SNAPSHOT": Point(120, 420),
}
_PHASE_BENDS = {
    ("COMPARE", "TRUNCATE"): 45.0,
    ("TRUNCATE", "COMPARE"): 40.0,
    ("TRUNCATE", "APPEND"): 45.0,
    ("APPEND", "TRUNCATE"): 35.0,
    ("COMPARE", "APPEND"): 80.0,
    ("APPEND", "COMPARE"): 80.0,
    ("APPEND", "COMMIT"): 50.0,
    ("COMMIT", "APPEND"): 40.0,
    ("COMMIT", "COMPARE"): 40.0,
    ("COMMIT", "TRUNCATE"): 0.0,
    ("COMPARE", "INSTALL_SNAPSHOT"): 70.0,
    ("INSTALL_SNAPSHOT", "COMPARE"): 70.0,
}


def _roles() -> dict[tuple[str, str], str]:
    return {
        (role.value, event.value): target.value for (role, event), target in ROLE_CHANGES.items()
    }


def _phases() -> dict[tuple[str, str], str]:
    return {
        (phase.name, event.name.lower().replace("_", " ")): target.name
        for (phase, event), target in PHASE_CHANGES.items()
    }


def role_changes() -> str:
    """Every transition of a role."""
    return table(
        ("a", "that", "becomes a"),
        [(role, event, target) for (role, event), target in _roles().items()],
    )


def phase_changes() -> str:
    """Every transition of a phase, with what it means."""
    return table(
        ("in", "when", "meaning", "goes to"),
        [
            (phase.name, event.name.lower().replace("_", " "), event.value, target.name)
            for (phase, event), target in PHASE_CHANGES.items()
        ],
    )


def draw_roles() -> str:
    """The roles of a member."""
    return StateDiagram(_ROLE_PLACES, _ROLE_BENDS).draw(_roles(), "roles of a member")


def draw_phases() -> str:
    """What a leader does with one peer's log."""
    return StateDiagram(_PHASE_PLACES, _PHASE_BENDS).draw(_phases(), "phases of a dispatcher")

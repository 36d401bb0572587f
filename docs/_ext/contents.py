"""What is made from the code for the pages, by the name that a page calls it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from docs._ext import message_tables, reference, roles_and_phases, settings_table, store_tables
from docs._ext.sequence_chart import picture

DOCS = Path(__file__).parent.parent

TABLES: dict[str, Callable[[], str]] = {
    "peer-messages": message_tables.peer_messages,
    "peer-fields": message_tables.peer_fields,
    "shared-kinds": message_tables.shared_kinds,
    "phases": message_tables.phases,
    "first-frames": message_tables.first_frames,
    "client-operations": message_tables.client_operations,
    "limits": message_tables.limits,
    "role-changes": roles_and_phases.role_changes,
    "phase-changes": roles_and_phases.phase_changes,
    "recovery-table": store_tables.recovery,
    "errors": reference.errors,
    "further-names": reference.further,
    "node-settings": settings_table.node_settings,
}
PICTURES: dict[str, Callable[[], str]] = {
    "roles": roles_and_phases.draw_roles,
    "phases": roles_and_phases.draw_phases,
    **{path.stem: picture(path) for path in sorted((DOCS / "pictures").glob("*.scenario"))},
}

"""The orders about users that a nemesis gives to the clients of a run. Pure."""

from __future__ import annotations

from typing import Final

RENEW_SECRET: Final = "renew-secret"
DENY_GUEST: Final = "deny-guest"
ALLOW_GUEST: Final = "allow-guest"

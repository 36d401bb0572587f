"""Problems that keep a member behind, as texts for people."""

LACKS_SNAPSHOT = (
    "is behind the beginning of this log, and there is no snapshot to send it: have a state "
    "machine with snapshot() and restore(), or copy another member's folder while both are down"
)
REFUSES_SNAPSHOT = "does not take the snapshot that it needs: its own log says why"

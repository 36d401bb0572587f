"""Message records."""

from broker.messages.state import MESSAGES
from broker.serving.parts import Parts
from broker.serving.service import Service


def service(parts: Parts) -> Service:
    state, messages = parts.state, parts.state[MESSAGES]

    def figures() -> dict[str, str]:
        return {
            "commitLogMaxOffset": str(state.log_end),
            "commitLogMinOffset": str(messages.kept_position),
        }

    return Service(figures=figures)

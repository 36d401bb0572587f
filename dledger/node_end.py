"""How a node ended: what every call that this cuts off is told."""

from __future__ import annotations

from dataclasses import dataclass

from dledger.errors import NodeClosed, NodeClosing


@dataclass(frozen=True, slots=True)
class NodeEnd:
    """The end of a node.

    Attributes:
        cause: why the node could not go on; None where its block ended.
    """

    cause: BaseException | None = None

    def closing(self) -> NodeClosing:
        """The error of a call that has certainly done nothing."""
        error = NodeClosing()
        error.__cause__ = self.cause
        return error

    def closed(self, index: int) -> NodeClosed:
        """The error of a call whose entry at `index` may still be committed."""
        error = NodeClosed(index)
        error.__cause__ = self.cause
        return error

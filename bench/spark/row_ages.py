"""How old rows were when a sink had them."""

from __future__ import annotations

_NS_PER_S = 1e9


class RowAges:
    """The ages of the rows of a stream that were sent since some moment.

    Every row counts once, whatever batch brought it: of a small batch and a large one, the rows of
    the large one are more, and older.

    Attributes:
        batches: how many batches had rows, counted or not.
        rows: how many rows were counted.
        since_ns: rows that were sent earlier are not counted, in ns since 1970; None: count none.
        oldest_s: the greatest age of a counted row, in seconds.
    """

    def __init__(self) -> None:
        self.batches = 0
        self.rows = 0
        self.since_ns: int | None = None
        self.oldest_s = 0.0
        self._sum_s = 0.0

    @property
    def mean_s(self) -> float:
        """The mean age of the counted rows, in seconds."""
        return self._sum_s / self.rows if self.rows else float("nan")

    def add(self, rows: int, mean_sent_ns: float, first_sent_ns: float, now_ns: int) -> None:
        """Count the rows of a batch.

        Args:
            rows: how many rows of it were sent since then; 0 if none, and the times do not matter.
            mean_sent_ns: when these rows were sent, on average.
            first_sent_ns: when the first of them was sent.
            now_ns: when the sink had the batch.
        """
        if not rows:
            return
        self.rows += rows
        self._sum_s += rows * (now_ns - mean_sent_ns) / _NS_PER_S
        self.oldest_s = max(self.oldest_s, (now_ns - first_sent_ns) / _NS_PER_S)

"""How old rows were when a sink had them."""

from __future__ import annotations

_NS_PER_S = 1e9


class RowAges:
    """The ages of a stream's rows that were sent after some moment.

    Every row counts once, in a batch of any size.

    Attributes:
        batches: number of batches with rows, counted or not.
        rows: number of counted rows.
        since_ns: earlier rows are not counted, in ns since 1970; None: count none.
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
        return self._sum_s / self.rows if self.rows else float("nan")

    def add(self, rows: int, mean_sent_ns: float, first_sent_ns: float, now_ns: int) -> None:
        """Count the rows of a batch.

        Args:
            rows: number of rows to count; if 0, the times do not matter.
            mean_sent_ns: when these rows were sent, on average.
            first_sent_ns: when the first of them was sent.
            now_ns: when the sink had the batch.
        """
        if not rows:
            return
        self.rows += rows
        self._sum_s += rows * (now_ns - mean_sent_ns) / _NS_PER_S
        self.oldest_s = max(self.oldest_s, (now_ns - first_sent_ns) / _NS_PER_S)

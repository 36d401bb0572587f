"""Says in the log of the process that lags are left out of the metrics."""

import logging

_log = logging.getLogger(__name__)


class LagsNotice:
    """Says it when that begins, not at every scrape."""

    def __init__(self) -> None:
        self._is_said = False

    def look(self, left_out: int) -> None:
        """Take how many are left out of a scrape."""
        if left_out and not self._is_said:
            _log.warning(
                "the metrics leave out the lags of %d groups and topics, the smallest: there are "
                "too many for one answer (rocketmq_metric_rows_left_out counts them)",
                left_out,
            )
        self._is_said = left_out > 0

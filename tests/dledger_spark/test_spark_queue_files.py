"""The files of consume queues, as the Spark source reads them."""

from __future__ import annotations

from pathlib import Path

from broker.log.entry import encode_log_command
from broker.topics.commands import DeleteTopic
from dledger_spark.log.queue_files import QueueCursors, queue_folder
from tests.broker.log.test_broker_fold import Log, with_topic
from tests.dledger_spark.queue_writer import write_queues


def test_a_topic_that_was_made_again_begins_with_its_first_message(tmp_path: Path) -> None:
    log = Log()
    with_topic(log)
    for offset in range(8):
        log.append_record("A", 0, offset)
    log.append(encode_log_command(DeleteTopic("A", 9, with_locks=True, keeps_ends=True)))
    with_topic(log)
    entries = [log.append_record("A", 0, offset) for offset in range(8, 20)]
    write_queues(tmp_path, log.entries, len(log.entries))
    folder = queue_folder(str(tmp_path / "log"), log.end)
    assert folder is not None
    cursors = QueueCursors(folder, 0)
    offsets: dict[int, int] = {}
    while found := cursors.take_before(log.end):
        for units in found:
            offsets.update(enumerate(units.places.tolist(), units.first_offset))
    assert offsets == {at: entry.body_pos for at, entry in enumerate(entries, 8)}

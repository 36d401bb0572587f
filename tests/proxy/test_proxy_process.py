"""A proxy as a process: with gRPC's own library as its client, by TLS and without."""

from __future__ import annotations

import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from click.testing import CliRunner

from dledger.free_ports import free_addresses
from proxy.proxy_command import main
from proxy.wire import messages_pb2 as messages
from proxy.wire.messages_pb2 import Code
from tests.clients.local_cluster import UP, LocalCluster
from tests.proxy.grpc_client import SERVICE
from tests.proxy.real_proxy import acknowledging, message, receiving, sending
from tests.proxy.settings_of_clients import producer_settings

TOPIC = "Orders"
HEADERS = (("x-mq-client-id", "host@1@0@process"),)
# A process starts within this time on a busy machine.
START_S = 30


class Stub:
    """Calls by gRPC's own library."""

    def __init__(self, channel: grpc.Channel) -> None:
        self.channel = channel

    def unary(self, request: Any, timeout_s: float = 20.0) -> Any:
        name = type(request).__name__.removesuffix("Request")
        call = self.channel.unary_unary(
            SERVICE + name,
            request_serializer=type(request).SerializeToString,
            response_deserializer=getattr(messages, f"{name}Response").FromString,
        )
        return call(request, timeout=timeout_s, metadata=HEADERS, wait_for_ready=True)

    def receive(self, topic: str) -> list[messages.Message]:
        call = self.channel.unary_stream(
            SERVICE + "ReceiveMessage",
            request_serializer=messages.ReceiveMessageRequest.SerializeToString,
            response_deserializer=messages.ReceiveMessageResponse.FromString,
        )
        parts = call(receiving(topic, wait_s=10), timeout=23, metadata=HEADERS)
        return [part.message for part in parts if part.WhichOneof("content") == "message"]

    def telemetry(self, commands: Iterator[messages.TelemetryCommand]) -> Any:
        call = self.channel.stream_stream(
            SERVICE + "Telemetry",
            request_serializer=messages.TelemetryCommand.SerializeToString,
            response_deserializer=messages.TelemetryCommand.FromString,
        )
        return call(commands, metadata=HEADERS)


@contextmanager
def plain(address: str) -> Iterator[Stub]:
    with grpc.insecure_channel(address) as channel:
        yield Stub(channel)


@contextmanager
def by_tls(address: str) -> Iterator[Stub]:
    """Believes the certificate that the proxy shows, as clients in Java, Go and C# do."""
    host, _colon, port = address.rpartition(":")
    shown = ssl.get_server_certificate((host, int(port)), timeout=START_S)
    credentials = grpc.ssl_channel_credentials(root_certificates=shown.encode())
    options = (("grpc.ssl_target_name_override", "localhost"),)
    with grpc.secure_channel(address, credentials, options) as channel:
        yield Stub(channel)


def exchange(stub: Stub, topic: str, body: bytes) -> None:
    """Send, receive, acknowledge."""
    sent = stub.unary(sending(message(topic, body)))
    assert sent.status.code == Code.OK, sent
    (got,) = stub.receive(topic)
    assert got.body == body
    done = stub.unary(acknowledging(topic, got))
    assert done.status.code == Code.OK, done


@pytest.mark.slow
def test_clients_of_grpc_reach_a_local_cluster_by_tls_and_without() -> None:
    (address,) = free_addresses(1)
    up = f"{UP} --nodes 1 --grpc {address}"
    with tempfile.TemporaryDirectory() as folder, LocalCluster(Path(folder), up) as cluster:
        cluster.command("topic", "create", TOPIC, "--queues", "1")
        for connected in (plain, by_tls):
            with connected(address) as stub:
                exchange(stub, TOPIC, connected.__name__.encode())
                ended = threading.Event()

                def commands(ended: threading.Event = ended) -> Iterator[Any]:
                    yield messages.TelemetryCommand(settings=producer_settings(TOPIC))
                    ended.wait(START_S)

                told = stub.telemetry(commands())
                first = next(told)
                assert first.status.code == Code.OK
                assert first.settings.publishing.max_body_size == 4 * 1024 * 1024
                ended.set()
                assert list(told) == []
                with pytest.raises(grpc.RpcError) as failed:
                    stub.channel.unary_unary(SERVICE + "PullMessage")(b"", timeout=10)
                assert failed.value.code() is grpc.StatusCode.UNIMPLEMENTED


def _proxy(address: str, *options: str) -> subprocess.Popen[str]:
    """Start a proxy of name servers that are not there."""
    command = [sys.executable, "-m", "proxy", "--listen", address]
    return subprocess.Popen(
        [*command, "--nameservers", "127.0.0.1:1", *options],
        stderr=subprocess.STDOUT,
        stdout=subprocess.PIPE,
        text=True,
    )


@contextmanager
def running(address: str, *options: str) -> Iterator[subprocess.Popen[str]]:
    process = _proxy(address, *options)
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if "listening" in line:
                break
        else:
            pytest.fail(f"it ended with {process.wait()}")
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.mark.slow
def test_a_proxy_that_ends_tells_its_clients(tmp_path: Path) -> None:
    address, metrics = free_addresses(2)
    with (
        running(address, "--metrics", metrics, "--tls-mode", "disabled") as process,
        plain(address) as stub,
    ):
        assert stub.unary(messages.HeartbeatRequest()).status.code == Code.OK
        unreachable = stub.unary(sending(message(TOPIC)))
        assert unreachable.status.code == Code.HA_NOT_AVAILABLE
        page = urllib.request.urlopen(f"http://{metrics}/metrics", timeout=10).read().decode()
        assert 'dledger_proxy_calls_total{method="Heartbeat"} 1.0' in page
        assert "dledger_proxy_clients 1.0" in page
        assert "dledger_proxy_connections 1.0" in page
        told = stub.telemetry(iter([messages.TelemetryCommand(settings=producer_settings())]))
        assert next(told).status.code == Code.OK
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert list(told) == []  # its end, without an error
        assert process.wait(START_S) == 0
        assert time.monotonic() - began < 10
        with pytest.raises(grpc.RpcError) as failed:
            stub.channel.unary_unary(SERVICE + "Heartbeat")(b"", timeout=1)
        assert failed.value.code() is grpc.StatusCode.UNAVAILABLE


@pytest.mark.slow
def test_what_speaks_no_http2_is_told_so() -> None:
    (address,) = free_addresses(1)
    with running(address):
        host, _colon, port = address.rpartition(":")
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_alpn_protocols(["h2", "http/1.1"])
        with (
            socket.create_connection((host, int(port)), timeout=10) as raw,
            context.wrap_socket(raw) as secured,
        ):
            assert secured.selected_alpn_protocol() == "h2"
        with socket.create_connection((host, int(port)), timeout=10) as raw:
            raw.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert b"gRPC" in raw.recv(4096)


def test_a_proxy_that_nothing_protects_is_for_this_machine_alone() -> None:
    result = CliRunner().invoke(main, ["--listen", "0.0.0.0:8081"])
    assert result.exit_code
    assert "--credentials" in result.output
    for listen in ("nowhere", "127.0.0.1:0", ":8081"):
        result = CliRunner().invoke(main, ["--listen", listen, "--print-config"])
        assert result.exit_code, listen
        assert "--listen" in result.output
    result = CliRunner().invoke(main, ["--listen", "127.0.0.1:18081", "--print-config"])
    assert result.exit_code == 0, result.output
    assert "127.0.0.1:18081" in result.output

"""Websockets through real sockets: handshakes, messages, limits, and the management API."""

import json
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from tests.infra import stub_app
from tests.infra.conftest import until


def _open(gateway: str, query: str = "") -> ClientConnection:
    return connect(f"ws://{gateway}/ws{query}", max_size=None, compression=None, proxy=None)


@pytest.fixture
def socket(gateway: str) -> Iterator[ClientConnection]:
    with _open(gateway, "?a=1&a=2") as made:
        yield made


@pytest.fixture
def management(gateway: str) -> Any:
    return boto3.client("apigatewaymanagementapi", endpoint_url=f"http://{gateway}/_sockets")


def _ask(socket: ClientConnection, text: str = "who") -> dict[str, Any]:
    socket.send(text)
    answered: dict[str, Any] = json.loads(socket.recv(5))
    return answered


def _close_code(socket: ClientConnection) -> int | None:
    with pytest.raises(ConnectionClosed):
        socket.recv(5)
    return socket.close_code


def test_a_frame_becomes_a_message_event(socket: ClientConnection) -> None:
    event = _ask(socket, "who é")
    context = event["requestContext"]
    assert (event["body"], event["isBase64Encoded"]) == ("who é", False)
    assert (context["routeKey"], context["eventType"], context["stage"]) == ("$default", "MESSAGE", "live")
    assert context["messageId"]
    assert context["requestId"]


def test_frames_of_one_connection_are_handled_in_order(socket: ClientConnection) -> None:
    for number in range(50):
        socket.send(f"say {number}")
    assert [socket.recv(5) for _ in range(50)] == [str(number) for number in range(50)]


@pytest.mark.parametrize("status", [401, 403, 500])
def test_the_handler_refuses_a_handshake_with_its_status(gateway: str, status: int) -> None:
    with pytest.raises(InvalidStatus) as refused:
        _open(gateway, f"?status={status}")
    assert refused.value.response.status_code == status
    assert refused.value.response.headers["content-type"] == "application/problem+json"


def test_a_crash_in_connect_refuses_the_handshake(gateway: str) -> None:
    with pytest.raises(InvalidStatus) as refused:
        _open(gateway, "?raise=1")
    assert refused.value.response.status_code == 502


def test_another_path_is_no_websocket(gateway: str) -> None:
    with pytest.raises(InvalidStatus) as refused:
        connect(f"ws://{gateway}/api/health", proxy=None)
    assert refused.value.response.status_code == 404


def _statuses(connection: str) -> list[int]:
    """Of all posts to a connection."""
    return [status for posted, status in stub_app.SEEN["posts"] if posted == connection]


def test_a_connection_is_gone_before_its_handshake_and_after_its_end(gateway: str) -> None:
    with _open(gateway, "?early=1") as made:
        connection = _ask(made)["requestContext"]["connectionId"]
        until(lambda: _statuses(connection) == [410, 200])
    until(lambda: _statuses(connection) == [410, 200, 410])


def test_leaving_is_told_with_its_code(gateway: str) -> None:
    with _open(gateway) as made:
        connection = _ask(made)["requestContext"]["connectionId"]
        made.close(4001, "enough")
    until(lambda: _left(connection))
    (context,) = _left(connection)
    assert (context["routeKey"], context["eventType"]) == ("$disconnect", "DISCONNECT")
    assert (context["disconnectStatusCode"], context["disconnectReason"]) == (4001, "enough")


def _left(connection: str) -> list[dict[str, Any]]:
    return [context for context in stub_app.SEEN["disconnect"] if context["connectionId"] == connection]


def test_a_message_above_32_kb_closes_with_1009_and_one_of_32_kb_arrives(socket: ClientConnection) -> None:
    socket.send("say " + "x" * (32 * 1024 - 4))
    assert len(socket.recv(5)) == 32 * 1024 - 4
    socket.send("x" * (32 * 1024 + 1))
    assert _close_code(socket) == 1009


def test_a_binary_frame_closes_with_1003(socket: ClientConnection) -> None:
    socket.send(b"bytes")
    assert _close_code(socket) == 1003


def test_a_crash_of_the_handler_is_told_on_the_socket_which_stays_open(socket: ClientConnection) -> None:
    told = _ask(socket, "raise")
    assert told["message"] == "Internal server error"
    assert _ask(socket)["body"] == "who"


def test_a_post_above_128_kb_is_refused_and_one_of_128_kb_arrives(socket: ClientConnection) -> None:
    connection = _ask(socket)["requestContext"]["connectionId"]
    socket.send(f"big {128 * 1024 + 1}")
    socket.send(f"big {128 * 1024}")
    assert len(socket.recv(5)) == 128 * 1024
    until(lambda: _statuses(connection) == [200, 413, 200])


def test_the_management_api_answers_the_sdk(socket: ClientConnection, management: Any) -> None:
    connection = _ask(socket)["requestContext"]["connectionId"]
    management.post_to_connection(ConnectionId=connection, Data=b"hello")
    assert socket.recv(5) == "hello"
    assert management.get_connection(ConnectionId=connection)["Identity"]["SourceIp"] == "127.0.0.1"
    management.delete_connection(ConnectionId=connection)
    assert _close_code(socket) == 1000
    with pytest.raises(ClientError) as gone:
        management.post_to_connection(ConnectionId=connection, Data=b"late")
    assert gone.value.response["Error"]["Code"] == "GoneException"
    assert gone.value.response["ResponseMetadata"]["HTTPStatusCode"] == 410


def _post_for_ever(management: Any, connection: str) -> None:
    for _ in range(1000):
        management.post_to_connection(ConnectionId=connection, Data=b"x" * 128 * 1024)


def test_a_reader_that_does_not_read_is_dropped_and_stops_nobody(gateway: str, management: Any) -> None:
    with _open(gateway) as slow, _open(gateway) as other:
        connection = _ask(slow)["requestContext"]["connectionId"]
        with pytest.raises(ClientError) as gone:
            _post_for_ever(management, connection)
        assert gone.value.response["ResponseMetadata"]["HTTPStatusCode"] == 410
        assert _ask(other)["body"] == "who"
        slow.socket.close()

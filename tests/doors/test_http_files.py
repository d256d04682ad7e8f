"""Files at the HTTP door: bytes in and out as they are, headers that no browser can misread, ids of uploads."""

from typing import Any
from urllib.parse import quote

import pytest

from chalicelib.domain.commands import Answer, StartUpload, Upload
from chalicelib.domain.errors import NotFound, TooLarge
from tests.doors.http_house import TOKENS, CardboardHouse, event, file_content, open_door

ASKER = TOKENS["member-of-a"]
FILE, UPLOADS = "threads/{thread_id}/files", "POST /threads/{thread_id}/uploads"
GET, PUT, DELETE = f"GET /{FILE}", f"PUT /{FILE}", f"DELETE /{FILE}"
AT = {"path": "/a.txt"}
ASK: dict[str, Any] = {"path": "/big.bin", "bytes": 7, "content_type": "image/png", "sha256": "a" * 64}


def test_a_file_is_a_download_that_no_browser_runs() -> None:
    house = CardboardHouse(file=file_content(b"\x00\xff<script>", '/a/ü "x";y\r.html', "text/html"))
    reply = open_door(house).send(GET, query=AT)
    assert (reply.status, reply.raw) == (200, b"\x00\xff<script>")
    assert reply.headers["content-type"] == "text/html"
    named = quote('ü "x";y\r.html', safe="")
    assert reply.headers["content-disposition"] == f"attachment; filename*=UTF-8''{named}"
    assert reply.headers["content-security-policy"] == "default-src 'none'; sandbox"
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert reply.headers["etag"] == f'"{"5" * 64}"'


@pytest.mark.parametrize("kind", ["", "text", "text/html\r\nSet-Cookie: x", "é/é"])
def test_a_file_whose_type_is_none_is_answered_as_bytes(kind: str) -> None:
    reply = open_door(CardboardHouse(file=file_content(b"x", "/a", kind))).send(GET, query=AT)
    assert reply.headers["content-type"] == "application/octet-stream"


def test_an_empty_file_is_answered_as_such() -> None:
    reply = open_door(CardboardHouse(file=file_content(b""))).send(GET, query=AT)
    assert (reply.status, reply.raw) == (200, b"")


def test_a_file_that_is_larger_than_an_answer_is_somewhere_else() -> None:
    house = CardboardHouse(file=file_content(None, "/big.bin", "text/html"))
    reply = open_door(house).send(GET, query=AT)
    assert (reply.status, reply.headers["location"]) == (307, "http://127.0.0.1:1/object?signed")
    named = {"Content-Type": "text/html", "Content-Disposition": "attachment; filename*=UTF-8''big.bin"}
    assert house.calls[-1] == ("file_address", ASKER, "thread_id-1", house.file.file, named)


@pytest.mark.parametrize("raw", [b"", b"\x00\xff\xfe", b'{"no": "json', "é".encode()])
def test_the_bytes_of_a_file_are_taken_as_they_are(raw: bytes) -> None:
    door = open_door()
    assert door.send(PUT, raw=raw, query=AT, headers={"Content-Type": "image/png"}).status == 201
    assert door.house.calls == [("put_file", ASKER, "thread_id-1", "/a.txt", raw, "image/png")]


def test_the_path_of_a_part_has_the_form_of_the_file_s_own_path() -> None:
    door = open_door()
    content = [{"type": "file", "path": "/e\u0301.txt"}]
    assert door.send("POST /threads/{thread_id}/messages", body={"content": content}).status == 201
    assert door.house.calls[0][3].content == ({"type": "file", "path": "/é.txt"},)


@pytest.mark.parametrize("headers", [{}, {"Content-Type": ""}])
def test_a_file_without_a_type_is_bytes(headers: dict[str, str]) -> None:
    door = open_door()
    assert door.send(PUT, query=AT, headers=headers).status == 201
    assert door.house.calls[0][-1] == "application/octet-stream"


@pytest.mark.parametrize("kind", ["png", "text/plain, image/png", "image/png\r\nX: y", "é/é", "image/" + "x" * 200])
def test_a_type_that_is_none_is_400(kind: str) -> None:
    door = open_door()
    reply = door.send(PUT, raw=b"x", query=AT, headers={"Content-Type": kind})
    assert reply.is_problem(400, "invalid-request")
    assert reply.paths == ["Content-Type"]
    assert door.house.calls == []


def test_a_body_that_claims_base64_and_is_not_is_400() -> None:
    door = open_door()
    broken = {**event(PUT, raw=b"x", query=AT), "body": "}{"}
    assert door.handle(broken).is_problem(400, "invalid-request")
    assert door.house.calls == []


@pytest.mark.parametrize(("status", "body"), [(201, {"path": "/a.txt"}), (200, {"path": "/a.txt"})])
def test_a_put_answers_what_the_service_says(status: int, body: dict[str, Any]) -> None:
    reply = open_door(CardboardHouse(answer=Answer(status=status, body=body))).send(PUT, raw=b"x", query=AT)
    assert (reply.status, reply.body) == (status, body)


def test_what_is_too_large_is_413_and_what_is_not_there_404() -> None:
    large = TooLarge.at("", "the file has 9 bytes")
    assert open_door(CardboardHouse(fails=large)).send(PUT, raw=b"x", query=AT).is_problem(413, "too-large")
    for route in (GET, DELETE):
        assert open_door(CardboardHouse(fails=NotFound())).send(route, query=AT).is_problem(404, "not-found")


def test_removing_a_file_answers_204_without_a_body() -> None:
    door = open_door()
    reply = door.send(DELETE, query=AT)
    assert (reply.status, reply.raw) == (204, b"")
    assert door.house.calls == [("delete_file", ASKER, "thread_id-1", "/a.txt")]


def test_an_upload_is_answered_with_its_id_and_address() -> None:
    door = open_door()
    reply = door.send(UPLOADS, body=ASK, headers={"Idempotency-Key": "k"})
    assert reply.status == 201
    assert sorted(reply.body) == ["expires_at", "headers", "upload_id", "url"]
    assert reply.body["upload_id"].startswith("fil_")
    _, _, thread_id, ask, idem = door.house.calls[0]
    assert (thread_id, ask, idem.key) == ("thread_id-1", StartUpload(**ASK), "k")


def test_a_replayed_upload_has_the_same_id_and_says_so() -> None:
    replay = open_door(CardboardHouse(answer=Answer(status=200, body={}, replayed=True))).send(UPLOADS, body=ASK)
    assert (replay.status, replay.headers["idempotency-replayed"]) == (200, "true")
    assert replay.body["upload_id"] == open_door().send(UPLOADS, body=ASK).body["upload_id"]


@pytest.mark.parametrize("path", ["/big.bin", "/" + "é" * 511, "/" + "a/" * 511 + "b"])
def test_an_upload_s_id_brings_back_what_was_announced(path: str) -> None:
    door = open_door()
    ask = {"path": path, "bytes": 7}
    upload_id = door.send(UPLOADS, body=ask).body["upload_id"]
    assert door.send(PUT, query={"path": path, "upload_id": upload_id}).status == 201
    wanted = StartUpload(path=path, bytes=7, content_type="application/octet-stream")
    assert door.house.calls[-1] == ("finish_upload", ASKER, "thread_id-1", path, Upload(nonce="nonce", ask=wanted))


@pytest.mark.parametrize("how", [{"ids": {"thread_id": "thr_2"}}, {"token": "member-of-b"}])
def test_an_upload_of_another_thread_or_org_is_none(how: dict[str, Any]) -> None:
    door = open_door()
    upload_id = door.send(UPLOADS, body=ASK).body["upload_id"]
    reply = door.send(PUT, query={"path": "/big.bin", "upload_id": upload_id}, **how)
    assert reply.is_problem(400, "invalid-request")
    assert reply.paths == ["upload_id"]
    assert [call[0] for call in door.house.calls] == ["start_upload"]


def test_a_cursor_is_no_upload() -> None:
    door = open_door()
    door.house.page.items.append("more")
    upload_id = door.send(UPLOADS, body=ASK).body["upload_id"].removeprefix("fil_")
    reply = door.send("GET /threads/{thread_id}/files/list", query={"cursor": upload_id})
    assert reply.paths == ["cursor"]


def test_the_bytes_of_an_upload_do_not_come_with_its_id() -> None:
    door = open_door()
    upload_id = door.send(UPLOADS, body=ASK).body["upload_id"]
    reply = door.send(PUT, raw=b"x", query={"path": "/big.bin", "upload_id": upload_id})
    assert reply.is_problem(400, "invalid-request")
    assert [call[0] for call in door.house.calls] == ["start_upload"]

"""Files on the running product: through the client, the command and plain HTTP, small and large."""

import hashlib
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner, Result

from chalicelib.cli import main
from chalicelib.client import InvalidRequest, NotFound, Turnlog
from chalicelib.domain.fold import fold
from tests.journeys.product import Product, together

MB = 1024 * 1024


@pytest.fixture
def thread(turnlog: Turnlog) -> str:
    return turnlog.create_thread("assistant")["thread"]["id"]


def told(turnlog: Turnlog, thread: str) -> list[tuple[str, str]]:
    events = turnlog.events(thread).items
    return [(event.data["path"], event.data["change"]) for event in events if event.type == "file.changed"]


def test_a_file_goes_in_and_out_and_every_change_is_told(turnlog: Turnlog, thread: str) -> None:
    data = bytes(range(256)) * 40
    entry = turnlog.put_file(thread, "/a/b ü/c.bin", data, content_type="image/png")
    assert (entry["path"], entry["bytes"], entry["content_type"]) == ("/a/b ü/c.bin", len(data), "image/png")
    assert entry["sha256"] == hashlib.sha256(data).hexdigest()
    assert turnlog.get_file(thread, "/a/b ü/c.bin") == data
    turnlog.put_file(thread, "/a/b ü/c.bin", b"")
    assert turnlog.get_file(thread, "/a/b ü/c.bin") == b""
    assert [one["path"] for one in turnlog.list_files(thread)] == ["/a"]
    assert [one["kind"] for one in turnlog.list_files(thread, "/a/b ü")] == ["file"]
    turnlog.delete_file(thread, "/a/b ü/c.bin")
    with pytest.raises(NotFound):
        turnlog.get_file(thread, "/a/b ü/c.bin")
    with pytest.raises(NotFound):
        turnlog.delete_file(thread, "/a/b ü/c.bin")
    assert list(turnlog.list_files(thread)) == []
    path = "/a/b ü/c.bin"
    assert told(turnlog, thread) == [(path, "created"), (path, "updated"), (path, "deleted")]


def test_a_folder_of_many_files_comes_in_pages(turnlog: Turnlog, thread: str) -> None:
    for n in range(53):
        turnlog.put_file(thread, f"/f/{n:02d}", b"x")
    assert [one["path"] for one in turnlog.list_files(thread, "/f")] == [f"/f/{n:02d}" for n in range(53)]


def test_what_is_larger_than_a_request_goes_another_way_and_comes_back_whole(turnlog: Turnlog, thread: str) -> None:
    data = bytes(range(256)) * 4096 * 9
    entry = turnlog.put_file(thread, "/big.bin", data, content_type="application/x-big")
    assert (entry["bytes"], entry["sha256"]) == (9 * MB, hashlib.sha256(data).hexdigest())
    assert turnlog.get_file(thread, "/big.bin") == data
    assert turnlog.put_file(thread, "/big.bin", data, content_type="application/x-big") == entry
    assert told(turnlog, thread) == [("/big.bin", "created")]


def test_a_large_file_is_fetched_without_a_credential_and_as_a_download(product: Product, turnlog: Turnlog) -> None:
    thread = turnlog.create_thread("assistant")["thread"]["id"]
    turnlog.put_file(thread, "/big é.html", b"<b>" * 2 * MB, content_type="text/html")
    with product.http() as http:
        answer = http.get(f"/threads/{thread}/files", params={"path": "/big é.html"})
    assert answer.status_code == 307
    fetched = httpx.get(answer.headers["location"], trust_env=False)
    assert fetched.content == b"<b>" * 2 * MB
    assert fetched.headers["content-type"] == "text/html"
    assert fetched.headers["content-disposition"] == "attachment; filename*=UTF-8''big%20%C3%A9.html"


def test_an_upload_that_is_not_what_was_announced_never_becomes_visible(product: Product, thread: str) -> None:
    ask = {"path": "/up.bin", "bytes": 4, "sha256": hashlib.sha256(b"good").hexdigest()}
    with product.http() as http:
        made = http.post(f"/threads/{thread}/uploads", json=ask, headers={"Idempotency-Key": f"up-{thread}"})
        again = http.post(f"/threads/{thread}/uploads", json=ask, headers={"Idempotency-Key": f"up-{thread}"})
        assert (made.status_code, again.status_code, again.headers["idempotency-replayed"]) == (201, 200, "true")
        assert again.json()["upload_id"] == made.json()["upload_id"]
        finish = {"path": "/up.bin", "upload_id": made.json()["upload_id"]}
        assert http.put(f"/threads/{thread}/files", params=finish).status_code == 400
        # Another key asks for the same bytes without naming their hash, so that the store takes whatever comes.
        free = http.post(f"/threads/{thread}/uploads", json={"path": "/up.bin", "bytes": 4}).json()
        sent = httpx.put(free["url"], content=b"evil", headers=free["headers"], trust_env=False)
        assert sent.status_code == 200
        other = {"path": "/other.bin", "upload_id": free["upload_id"]}
        assert http.put(f"/threads/{thread}/files", params=other).status_code == 400
        assert http.put(f"/threads/{thread}/files", params=finish).status_code == 400
        assert http.get(f"/threads/{thread}/files", params={"path": "/up.bin"}).status_code == 404
        reused = {**ask, "bytes": 5}
        clash = http.post(f"/threads/{thread}/uploads", json=reused, headers={"Idempotency-Key": f"up-{thread}"})
        assert clash.status_code == 409
        too_large = http.post(f"/threads/{thread}/uploads", json={"path": "/x", "bytes": 100 * MB + 1})
        assert too_large.status_code == 413


def test_one_key_sent_many_times_at_once_is_one_upload(product: Product, thread: str) -> None:
    ask, key = {"path": "/up.bin", "bytes": 4}, {"Idempotency-Key": f"storm-{thread}"}

    def send() -> tuple[int, str]:
        with product.http() as http:
            answer = http.post(f"/threads/{thread}/uploads", json=ask, headers=key)
            return answer.status_code, answer.json()["upload_id"]

    answers = together(*[send] * 12)
    assert sorted(status for status, _ in answers) == [200] * 11 + [201]
    assert len({upload_id for _, upload_id in answers}) == 1


def test_files_of_another_org_are_like_those_of_no_thread(turnlog: Turnlog, other: Turnlog, thread: str) -> None:
    turnlog.put_file(thread, "/secret", b"s")
    unknown = "thr_" + "a" * 20
    for at in (thread, unknown):
        for refused in (
            lambda at=at: other.get_file(at, "/secret"),
            lambda at=at: other.put_file(at, "/mine", b"m"),
            lambda at=at: other.put_file(at, "/mine", b"m" * 5 * MB),
            lambda at=at: other.delete_file(at, "/secret"),
            lambda at=at: list(other.list_files(at)),
        ):
            with pytest.raises(NotFound):
                refused()
    assert turnlog.get_file(thread, "/secret") == b"s"


def test_a_path_in_the_way_is_refused_in_words(turnlog: Turnlog, thread: str) -> None:
    turnlog.put_file(thread, "/a/b", b"x")
    with pytest.raises(InvalidRequest, match="`/a` is a folder"):
        turnlog.put_file(thread, "/a", b"x")
    with pytest.raises(InvalidRequest, match="`/a/b` is a file"):
        turnlog.put_file(thread, "/a/b/c", b"x")


def test_the_log_tells_the_files_that_are_there(turnlog: Turnlog, thread: str) -> None:
    for path, data in (("/a", b"1"), ("/b/c", b"22"), ("/a", b"333"), ("/d", b"")):
        turnlog.put_file(thread, path, data)
    turnlog.delete_file(thread, "/d")
    files = fold(event.envelope for event in turnlog.events(thread).items).files
    stored = [*turnlog.list_files(thread), *turnlog.list_files(thread, "/b")]
    assert files == {
        one["path"]: {"bytes": one["bytes"], "sha256": one["sha256"]} for one in stored if one["kind"] == "file"
    }


def command(product: Product, *arguments: str, stdin: bytes | None = None) -> Result:
    environment = {"TURNLOG_URL": product.url, "TURNLOG_KEY": product.key}
    return CliRunner().invoke(main, ["files", *arguments], env=environment, input=stdin)


def test_the_command_moves_files(product: Product, thread: str, tmp_path: Path) -> None:
    local, back = tmp_path / "note.txt", tmp_path / "back.txt"
    local.write_bytes(b"\x00note")
    assert command(product, thread, "put", str(local)).exit_code == 0
    assert command(product, thread, "put", "-", "/in/put.md", stdin=b"typed").exit_code == 0
    listed = command(product, thread)
    assert [line.split()[-1] for line in listed.stdout.splitlines()] == ["/in/", "/note.txt"]
    assert command(product, thread, "get", "/in/put.md").stdout == "typed"
    assert command(product, thread, "get", "/note.txt", str(back)).exit_code == 0
    assert back.read_bytes() == b"\x00note"
    assert command(product, thread, "rm", "/note.txt").exit_code == 0
    assert command(product, thread, "get", "/note.txt").exit_code == 3
    assert [command(product, thread, action).exit_code for action in ("get", "put", "rm")] == [2, 2, 2]
    assert command(product, thread, "put", str(tmp_path / "none")).exit_code == 2

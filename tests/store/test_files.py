"""Files as rows and objects: a change is one write behind the head, folders are ranges, names never get other bytes."""

import hashlib

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chalicelib.adapters.clients import Clients
from chalicelib.adapters.file_objects import S3FileObjects, name, upload_name
from chalicelib.adapters.store import TableStore
from chalicelib.adapters.table import Table
from chalicelib.domain import paths
from chalicelib.domain.errors import InvalidRequest, NotFound, RetryLater
from chalicelib.domain.ids import ThreadRef
from chalicelib.domain.model import File, Head
from chalicelib.domain.queueing import Draft
from chalicelib.engine import files as rules
from chalicelib.engine.files import Entry, Shelf, new_file
from chalicelib.engine.log import commit_of
from tests.store.kit import NOW, change, create, done, fact, moved, thread

DEAD_END = "http://127.0.0.1:9"


@pytest.fixture
def clients(emulator: str) -> Clients:
    return Clients(region="us-east-1", endpoint=emulator)


@pytest.fixture
def objects(clients: Clients) -> S3FileObjects:
    """Objects in a bucket that the tests of this module share."""
    clients.client("s3").create_bucket(Bucket="files-of-tests")
    return S3FileObjects(clients, "files-of-tests")


def row(path: str, data: bytes = b"x", at: int = NOW) -> File:
    return new_file(path, data, "text/plain", at)


class Thread:
    """A thread whose files are changed by the rules of the engine, one commit a change."""

    def __init__(self, store: TableStore, ref: ThreadRef) -> None:
        self.store, self.ref = store, ref
        self.head: Head = create(store, ref)
        # Rules never touch objects: bytes are put away before.
        self.shelf = Shelf(store=store, objects=S3FileObjects(Clients(endpoint=DEAD_END), "none"), ref=ref)

    def commit(self, draft: Draft | None) -> str | None:
        """Make a change true; what the event says of it."""
        if draft is None:
            return None
        commit = commit_of(self.ref, self.head, draft, now=NOW, write=f"write-{self.head.rev}")
        self.head = done(self.store.commit(commit))
        return draft.facts[0].data.get("change")

    def put(self, path: str, data: bytes = b"x", at: int = NOW) -> str | None:
        return self.commit(self.shelf.written(self.head, row(path, data, at))[1])

    def all(self) -> list[str]:
        low, high = paths.range_of("/")
        return [file.path for file in self.store.files(self.ref, low=low, high=high, limit=1_000)]


@pytest.fixture
def its(store: TableStore, ref: ThreadRef) -> Thread:
    return Thread(store, ref)


def shown(entries: list[Entry]) -> list[str]:
    """Entries as one sees them: folders with a slash."""
    return [entry.path + ("/" if entry.kind == "directory" else "") for entry in entries]


def test_a_file_and_its_event_are_one_write_that_a_moved_head_refuses(store: TableStore, ref: ThreadRef) -> None:
    old = create(store, ref)
    new = done(store.commit(change(ref, old)))
    shelf = Thread(store, thread()).shelf
    draft = Shelf(store=store, objects=shelf.objects, ref=ref).written(old, row("/a"))[1]
    assert draft is not None
    assert moved(store.commit(commit_of(ref, old, draft, now=NOW, write="late"))).head == new
    assert store.files(ref, low="\x01", high="b", limit=10) == []
    assert len(store.events(ref, after=0, limit=10, max_bytes=10_000)) == 1


def test_what_is_read_is_what_was_written(its: Thread) -> None:
    file = File(path="/a b/é", bytes=3, sha256="f" * 64, content_type="text/plain", created_at=NOW, updated_at=NOW + 1)
    its.commit(Draft(after=its.head, files=(file,), facts=(fact(),)))
    assert its.shelf.file("/a b/é") == file


def test_a_file_that_is_replaced_keeps_the_instant_of_its_making(its: Thread) -> None:
    assert [its.put("/a"), its.put("/a", b"y", NOW + 5), its.put("/a", b"y", NOW + 9)] == ["created", "updated", None]
    file = its.shelf.file("/a")
    assert (file.created_at, file.updated_at, file.bytes) == (NOW, NOW + 5, 1)


def test_another_type_is_a_change_too(its: Thread) -> None:
    its.put("/a")
    typed = new_file("/a", b"x", "image/png", NOW)
    assert its.commit(its.shelf.written(its.head, typed)[1]) == "updated"


def test_a_removed_file_is_gone_and_the_event_says_what_it_was(its: Thread) -> None:
    its.put("/a", b"xyz")
    draft = its.shelf.removed(its.head, "/a", NOW)
    assert draft.facts[0].data == {
        "path": "/a",
        "change": "deleted",
        "bytes": 3,
        "sha256": hashlib.sha256(b"xyz").hexdigest(),
    }
    its.commit(draft)
    assert its.all() == []
    with pytest.raises(NotFound):
        its.shelf.removed(its.head, "/a", NOW)


@pytest.mark.parametrize(
    "path", ["/" + "x" * 1_023, "/" + "é" * 511, "/" + "a/" * 511 + "b", "/" + "\U0010ffff" * 255, "/#", "/\u2028"]
)
def test_any_path_is_a_key(its: Thread, path: str) -> None:
    its.put(path)
    its.put("/z")
    assert its.shelf.file(path).path == path
    assert its.shelf.entry(path) == rules.entry_of(row(path))
    assert sorted(its.all(), key=paths.place) == its.all()
    its.commit(its.shelf.removed(its.head, path, NOW))
    assert its.all() == ["/z"]


def test_files_of_other_threads_and_orgs_are_not_there(store: TableStore, its: Thread) -> None:
    its.put("/secret")
    for ref in (thread(its.ref.org), ThreadRef("org_b", its.ref.token)):
        assert Shelf(store=store, objects=its.shelf.objects, ref=ref).entry("/secret") is None


def test_a_folder_is_there_as_long_as_something_is_in_it(its: Thread) -> None:
    its.put("/t-10/secret")
    assert its.shelf.entry("/t-1") is None
    its.put("/t-1/a")
    assert its.shelf.entry("/t-1") == Entry(path="/t-1", kind="directory")
    assert shown(its.shelf.entries("/t-1", position=None, limit=10).items) == ["/t-1/a"]
    assert shown(its.shelf.entries("/", position=None, limit=10).items) == ["/t-1/", "/t-10/"]
    its.commit(its.shelf.removed(its.head, "/t-1/a", NOW))
    assert its.shelf.entry("/t-1") is None


def test_a_folder_that_was_made_stays_until_it_is_removed(its: Thread) -> None:
    assert its.commit(its.shelf.made(its.head, "/a", NOW)) == "created"
    assert its.shelf.made(its.head, "/a", NOW) is None
    its.put("/a/b")
    with pytest.raises(InvalidRequest):
        its.shelf.unmade(its.head, "/a", NOW)
    its.commit(its.shelf.removed(its.head, "/a/b", NOW))
    assert shown(its.shelf.entries("/", position=None, limit=10).items) == ["/a/"]
    assert its.shelf.entries("/a", position=None, limit=10).items == []
    assert its.commit(its.shelf.unmade(its.head, "/a", NOW)) == "deleted"
    assert its.all() == []


def test_a_folder_with_files_can_be_made_to_stay(its: Thread) -> None:
    its.put("/a/b")
    assert its.commit(its.shelf.made(its.head, "/a", NOW)) == "created"
    its.commit(its.shelf.removed(its.head, "/a/b", NOW))
    assert its.shelf.entry("/a") == Entry(path="/a", kind="directory", created_at=NOW, updated_at=NOW)


def test_a_path_is_never_a_file_and_a_folder(its: Thread) -> None:
    its.put("/a/b/c")
    for made in ("/a", "/a/b"):
        with pytest.raises(InvalidRequest, match="is a folder"):
            its.put(made)
    for inside in ("/a/b/c/d", "/a/b/c/d/e/f"):
        with pytest.raises(InvalidRequest, match="`/a/b/c` is a file"):
            its.put(inside)
        with pytest.raises(InvalidRequest, match="`/a/b/c` is a file"):
            its.shelf.made(its.head, inside, NOW)
    assert its.put("/a/b/c.txt") == its.put("/a/b/c-d/e") == "created"


def test_pages_of_a_folder_follow_each_other_without_a_gap_or_a_repeat(its: Thread) -> None:
    made = [f"/f/{n:02d}" for n in range(7)] + ["/f/03-sub/a", "/f/03-sub/b", "/f/zz/deep/er"]
    for path in ["/e", "/g", *made]:
        its.put(path)
    found, position = [], None
    for _ in range(20):
        page = its.shelf.entries("/f", position=position, limit=2)
        found += page.items
        position = page.position
        if position is None:
            break
    assert shown(found) == [*(f"/f/0{n}" for n in range(4)), "/f/03-sub/", *(f"/f/0{n}" for n in (4, 5, 6)), "/f/zz/"]


def test_a_list_leaps_over_what_is_inside_its_folders(its: Thread, table: Table) -> None:
    """A folder of a thousand files is one entry; a page costs queries by its entries, not by what is below them."""
    many = [row(f"/big/{n:04d}") for n in range(3 * rules.ROWS_A_QUERY)]
    for first in range(0, len(many), 80):
        its.commit(Draft(after=its.head, files=tuple(many[first : first + 80]), facts=(fact(),)))
    its.put("/zz")
    asked: list[str] = []
    table.client.meta.events.register("before-call.dynamodb.Query", lambda **_: asked.append("query"), "count")
    try:
        assert shown(its.shelf.entries("/", position=None, limit=10).items) == ["/big/", "/zz"]
        assert len(asked) == 2
        page = its.shelf.entries("/big", position=None, limit=1_000, queries=1)
        assert (len(page.items), page.position is None) == (rules.ROWS_A_QUERY, False)
    finally:
        table.client.meta.events.unregister("before-call.dynamodb.Query", unique_id="count")


names = st.sampled_from(["a", "b", "a-b", "a.txt", "ab", "é"])
steps = st.lists(
    st.tuples(
        st.sampled_from(["put", "put", "remove", "make", "unmake"]),
        st.lists(names, min_size=1, max_size=3).map(lambda parts: "/" + "/".join(parts)),
        st.binary(max_size=1),
    ),
    max_size=14,
)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=steps)
def test_files_are_what_a_disk_would_hold(store: TableStore, steps: list[tuple[str, str, bytes]]) -> None:
    """Any changes in any order: the same are refused as on a disk, and what is left is listed as there."""
    its, disk, made = Thread(store, thread()), dict[str, bytes](), set[str]()
    for verb, path, data in steps:
        inside = [one for one in (*disk, *(f"{folder}/" for folder in made)) if one.startswith(f"{path}/")]
        over = [one for one in disk if path.startswith(f"{one}/")]
        try:
            if verb == "put":
                its.put(path, data)
                allowed = not inside and not over
                disk[path] = data
            elif verb == "remove":
                its.commit(its.shelf.removed(its.head, path, NOW))
                allowed = disk.pop(path, None) is not None
            elif verb == "make":
                its.commit(its.shelf.made(its.head, path, NOW))
                allowed = path not in disk and not over
                made.add(path)
            else:
                its.commit(its.shelf.unmade(its.head, path, NOW))
                allowed = inside == [f"{path}/"]
                made.discard(path)
            assert allowed, (verb, path)
        except (InvalidRequest, NotFound):
            refused = {
                "put": bool(inside or over),
                "remove": path not in disk,
                "make": path in disk or bool(over),
                "unmake": inside != [f"{path}/"],
            }
            assert refused[verb], (verb, path)
    assert set(its.all()) == {*disk, *(f"{folder}/" for folder in made)}
    children = {f"/{one.split('/')[1]}" for one in (*disk, *(f"{folder}/" for folder in made))}
    assert {entry.path for entry in its.shelf.entries("/", position=None, limit=100).items} == children


# -- objects


def test_bytes_come_back_in_pieces(objects: S3FileObjects, ref: ThreadRef) -> None:
    data = bytes(range(256)) * 4_096 * 3
    sha256 = hashlib.sha256(data).hexdigest()
    objects.put(ref, sha256, data)
    objects.put(ref, sha256, data)
    pieces = list(objects.read(ref, sha256))
    assert b"".join(pieces) == data
    assert max(map(len, pieces)) <= 1024 * 1024 < len(data)


def test_an_object_that_is_not_there_is_a_key_error(objects: S3FileObjects, ref: ThreadRef) -> None:
    with pytest.raises(KeyError):
        list(objects.read(ref, "0" * 64))
    assert objects.uploaded(ref, "none") is None
    with pytest.raises(KeyError):
        objects.keep(ref, "none", '"etag"', "0" * 64)


def test_a_download_has_the_headers_that_were_asked_for(objects: S3FileObjects, ref: ThreadRef) -> None:
    objects.put(ref, "0" * 64, b"<script>")
    wanted = {"Content-Type": "text/html", "Content-Disposition": "attachment; filename*=UTF-8''%C3%A9"}
    answer = httpx.get(objects.address(ref, "0" * 64, wanted), trust_env=False)
    assert (answer.status_code, answer.content) == (200, b"<script>")
    assert {name: answer.headers[name] for name in wanted} == wanted


def test_an_upload_is_looked_at_before_it_is_kept(objects: S3FileObjects, ref: ThreadRef) -> None:
    data = b"uploaded" * 1_000
    sha256 = hashlib.sha256(data).hexdigest()
    url, headers = objects.upload_address(
        ref, "u1", size=len(data), content_type="text/plain", sha256=sha256, seconds=60
    )
    assert httpx.put(url, content=data, headers=dict(headers), trust_env=False).status_code == 200
    sent = objects.uploaded(ref, "u1")
    assert sent is not None
    assert sent.bytes == len(data)
    assert b"".join(objects.read_upload(ref, "u1", sent.etag)) == data
    objects.keep(ref, "u1", sent.etag, sha256)
    objects.keep(ref, "u1", sent.etag, sha256)
    assert b"".join(objects.read(ref, sha256)) == data


def test_bytes_that_were_sent_after_the_look_are_not_kept(objects: S3FileObjects, ref: ThreadRef) -> None:
    """The address is still good after the check: whoever uses it again must not change what was checked."""
    url, headers = objects.upload_address(ref, "u1", size=4, content_type="text/plain", sha256=None, seconds=60)
    httpx.put(url, content=b"good", headers=dict(headers), trust_env=False)
    sent = objects.uploaded(ref, "u1")
    assert sent is not None
    httpx.put(url, content=b"evil", headers=dict(headers), trust_env=False)
    with pytest.raises(KeyError):
        list(objects.read_upload(ref, "u1", sent.etag))
    with pytest.raises(KeyError):
        objects.keep(ref, "u1", sent.etag, "0" * 64)
    with pytest.raises(KeyError):
        list(objects.read(ref, "0" * 64))


def test_the_address_of_an_upload_signs_size_type_and_content(objects: S3FileObjects, ref: ThreadRef) -> None:
    url, headers = objects.upload_address(ref, "u1", size=4, content_type="a/b", sha256="0" * 64, seconds=60)
    signed = httpx.URL(url).params["X-Amz-SignedHeaders"].split(";")
    assert {"content-length", "content-type", "x-amz-checksum-sha256"} <= set(signed)
    assert sorted(headers) == ["Content-Type", "x-amz-checksum-sha256"]
    assert set(signed) <= {"host", "content-length", *(name.lower() for name in headers)}


def test_names_of_files_cannot_be_confused_with_others() -> None:
    ref = ThreadRef("org_a", "token")
    assert name(ref, "sha") == "org_a/token/files/sha"
    assert upload_name(ref, "u1") == "uploads/org_a/token/u1"
    assert name(ThreadRef("a/b", "c"), "d") != name(ThreadRef("a", "b/c"), "d")


def test_a_store_that_does_not_answer_says_retry_later(ref: ThreadRef) -> None:
    objects = S3FileObjects(Clients(region="us-east-1", endpoint=DEAD_END), "bucket")
    with pytest.raises(RetryLater):
        objects.put(ref, "hash", b"")
    with pytest.raises(RetryLater):
        list(objects.read(ref, "hash"))
    with pytest.raises(RetryLater):
        objects.uploaded(ref, "upload")

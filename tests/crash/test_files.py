"""Files under faults: whatever dies, and however often a request or a tool comes again, a change is told once, and what
is told is what is stored. The process dies before and after each call to AWS of a change.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import Barrier
from typing import Any, TypeVar

import httpx
import pytest

from chalicelib.bootstrap import House
from chalicelib.domain.commands import Answer, StartUpload, Upload
from chalicelib.domain.errors import NotFound
from chalicelib.domain.fold import fold
from chalicelib.domain.model import File
from chalicelib.domain.paths import ROOT, range_of
from chalicelib.engine.state import ThreadState
from tests.crash.audit import audit
from tests.crash.faults import EVERY, FAULTS
from tests.crash.residents import result, run_tool, settled_in
from tests.crash.tap import Moment
from tests.crash.world import SECOND, World

Worlds = Callable[[str], World]
Play = Callable[[World], None]
T = TypeVar("T")


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def put(world: World, path: str, data: bytes) -> Answer:
    """A client writes a file, and sends the same again if nobody answers."""
    at = world.thread.id
    return world.request(lambda house: house.files.put_file(world.principal, at, path, data, "text/plain"))


def delete(world: World, path: str) -> None:
    """A client removes a file; the second time it is told that there is none, and is content."""

    def send(house: House) -> Answer:
        try:
            house.files.delete_file(world.principal, world.thread.id, path)
        except NotFound:
            pass
        return Answer(status=204, body=None)

    world.request(send)


def stored(world: World) -> list[File]:
    """The rows of the thread's files."""
    low, high = range_of(ROOT)
    with world.tap.outside():
        return world.house.store.files(world.thread, low=low, high=high, limit=100)


def changes(world: World) -> list[tuple[str, str]]:
    """What the log tells of files."""
    return [(e["data"]["path"], e["data"]["change"]) for e in world.events() if e["type"] == "file.changed"]


def agreement(world: World) -> list[str]:
    """Where log, rows and objects tell different stories."""
    rows = {row.path: {"bytes": row.bytes, "sha256": row.sha256 or None} for row in stored(world)}
    wrong = [] if fold(world.events()).files == rows else [f"folded {fold(world.events()).files}, stored {rows}"]
    for row in stored(world):
        with world.tap.outside():
            data = b"".join(world.house.file_objects.read(world.thread, row.sha256)) if row.sha256 else b""
        if row.sha256 and sha(data) != row.sha256:
            wrong.append(f"{row.path} shows other bytes")
    return wrong


# -- by the front door


def _create(world: World) -> None:
    put(world, "/a/b.txt", b"one")


def _replace(world: World) -> None:
    put(world, "/a/b.txt", b"two")


def _delete(world: World) -> None:
    delete(world, "/a/b.txt")


def _finish(world: World) -> None:
    """An upload that was sent becomes visible."""
    ask = StartUpload(path="/a/big.bin", bytes=7, content_type="text/plain")
    upload = Upload(nonce="u" * 20, ask=ask)
    with world.tap.outside():
        url, headers = world.house.file_objects.upload_address(
            world.thread, upload.nonce, size=7, content_type="text/plain", sha256=None, seconds=60
        )
    assert httpx.put(url, content=b"uploads", headers=dict(headers), trust_env=False).status_code == 200
    at = world.thread.id
    world.request(lambda house: house.files.finish_upload(world.principal, at, ask.path, upload))


@dataclass(frozen=True, kw_only=True)
class Case:
    """A change after other changes, and what must have become of it."""

    before: tuple[Play, ...] = ()
    change: Play
    told: list[tuple[str, str]]
    rows: dict[str, str]


CASES: Mapping[str, Case] = {
    "create": Case(change=_create, told=[("/a/b.txt", "created")], rows={"/a/b.txt": sha(b"one")}),
    "replace": Case(
        before=(_create,),
        change=_replace,
        told=[("/a/b.txt", "created"), ("/a/b.txt", "updated")],
        rows={"/a/b.txt": sha(b"two")},
    ),
    "delete": Case(before=(_create,), change=_delete, told=[("/a/b.txt", "created"), ("/a/b.txt", "deleted")], rows={}),
    "upload": Case(change=_finish, told=[("/a/big.bin", "created")], rows={"/a/big.bin": sha(b"uploads")}),
}


def _begin(world: World, case: Case) -> int:
    """The thread as it is before the change; the number of calls so far."""
    world.create({"script": []}, text=None)
    for one in case.before:
        one(world)
    return len(world.tap.calls)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", CASES)
def test_a_fault_at_any_call_of_a_change_leaves_one_event_and_one_row(world: Worlds, name: str, fault: str) -> None:
    case = CASES[name]
    clean = world(f"{name}: clean")
    first = _begin(clean, case)
    case.change(clean)
    points = len(clean.tap.calls) - first
    assert points >= 3
    for point in range(1, points + 1):
        its = world(f"{name}: {fault} at {point}")
        FAULTS[fault](its.tap, _begin(its, case) + point)
        case.change(its)
        assert its.tap.struck, its.seed
        assert changes(its) == case.told, its.seed
        assert {row.path: row.sha256 for row in stored(its)} == case.rows, its.seed
        assert agreement(its) == [], its.seed


def test_the_same_request_again_changes_nothing(world: Worlds) -> None:
    its = world("twice")
    its.create({"script": []}, text=None)
    first, second = put(its, "/a", b"x"), put(its, "/a", b"x")
    assert (first.status, second.status) == (201, 200)
    assert first.body == second.body
    assert changes(its) == [("/a", "created")]


def test_an_upload_finished_twice_is_one_change(world: Worlds) -> None:
    its = world("finished twice")
    its.create({"script": []}, text=None)
    _finish(its)
    _finish(its)
    assert changes(its) == [("/a/big.bin", "created")]


def test_two_writers_at_once_are_told_in_the_order_of_the_rows(world: Worlds) -> None:
    """Somebody writes the same file after this request has read, before it commits: the loser decides again."""
    its = world("race")
    its.create({"script": []}, text=None)
    first = len(its.tap.calls)
    put(its, "/probe", b"p")
    commit = len(its.tap.calls) - first
    calls = []

    def between() -> None:
        calls.append(1)
        its.meanwhile(lambda: put(its, "/a", b"theirs"))

    its.tap.at(len(its.tap.calls) + commit, Moment.BEFORE, between)
    mine = put(its, "/a", b"mine")
    assert (calls, mine.status) == ([1], 200)
    assert changes(its) == [("/probe", "created"), ("/a", "created"), ("/a", "updated")]
    assert {row.path: row.sha256 for row in stored(its)}["/a"] == sha(b"mine")
    assert agreement(its) == []


# -- by the tools of a run


def _edits(state: ThreadState, arguments: Mapping[str, Any]) -> Any:
    """Writes two files and replaces one. A second time it finds what is there, and changes nothing more."""
    patiently(lambda: state.write_file("/notes/a.txt", "first"))
    patiently(lambda: state.write_file("/notes/b.txt", b"second"))
    return patiently(lambda: state.read_file("/notes/a.txt")).decode()


def patiently(do: Callable[[], T]) -> T:
    """As a tool does that does not give up at once: a store that did not answer is asked again."""
    try:
        return do()
    except OSError:
        return do()


@pytest.mark.parametrize("every", EVERY)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_tool_that_dies_at_any_call_and_runs_again_leaves_one_event_for_each_file(
    world: Worlds, fault: str, every: int
) -> None:
    clean = settled_in(world("tool: clean"), _edits)
    run_tool(clean)
    assert result(clean) == ("ok", "first")
    points = len(clean.tap.calls)
    for point in range(1 + list(FAULTS).index(fault) % every, points + 1, every):
        its = settled_in(world(f"tool: {fault} at {point}"), _edits)
        FAULTS[fault](its.tap, point)
        run_tool(its)
        assert changes(its) == [("/notes/a.txt", "created"), ("/notes/b.txt", "created")], its.seed
        assert agreement(its) == [], its.seed
        wrong = [line for line in audit(its) if "a dead process called" not in line]
        assert wrong == [], its.seed


def test_what_a_tool_writes_belongs_to_its_run_and_stands_before_its_result(world: Worlds) -> None:
    its = settled_in(world("belongs"), _edits)
    run_tool(its)
    kinds = [e["type"] for e in its.events()]
    told = [e for e in its.events() if e["type"] == "file.changed"]
    assert {(e["run_id"], e["attempt"]) for e in told} == {(its.thread.run(1), 1)}
    assert kinds.index("tool.started") < kinds.index("file.changed") < kinds.index("tool.completed")


def test_what_a_tool_has_written_is_there_for_everybody_while_it_runs(world: Worlds) -> None:
    its = world("visible")
    seen: list[bytes | None] = []

    def use(state: ThreadState, arguments: Mapping[str, Any]) -> Any:
        state.write_file("/now.txt", "now")
        with its.tap.outside():
            seen.append(its.process(salt="reader").files.get_file(its.principal, its.thread.id, "/now.txt").data)
        return "later"

    settled_in(its, use)
    run_tool(its)
    assert seen == [b"now"]


def test_an_attempt_that_has_lost_its_lease_writes_no_file(world: Worlds) -> None:
    """The tool of a hung attempt wakes up after another attempt has taken over: its file is never seen."""
    its = world("hung")
    seen: list[str] = []

    def use(state: ThreadState, arguments: Mapping[str, Any]) -> Any:
        if not seen:
            seen.append("hung")
            later = its.clock.now() + 40 * SECOND  # by the other's clock; this one hangs
            with its.tap.outside():
                other = its.process(salt="other").store
                _, taken = other.take(its.thread, now=later, until=later + SECOND, nonce="other", takeover=True)
            assert taken
            state.write_file("/late.txt", "late")
        return "again"

    settled_in(its, use)
    run_tool(its)
    assert changes(its) == []
    assert stored(its) == []
    assert result(its) == ("ok", "again")


def test_a_tool_whose_time_is_over_writes_no_file_any_more(world: Worlds) -> None:
    its = world("late")
    gate = Barrier(2)

    def use(state: ThreadState, arguments: Mapping[str, Any]) -> Any:
        its.clock.sleep(10_000)
        while not state.wait(0.01):
            pass
        try:
            state.write_file("/late.txt", "late")
        finally:
            gate.wait(10)

    settled_in(its, use)
    run_tool(its)
    gate.wait(10)
    assert result(its)[0] == "error"
    assert stored(its) == []


def _everything(state: ThreadState, arguments: Mapping[str, Any]) -> Any:
    """Every method of files once; answers what each said."""
    said: dict[str, Any] = {}
    said["written"] = state.write_file("/src/a.py", "import os\nprint('é')\n").kind
    state.write_file("/src/deep/b.py", "import sys\n", "text/x-python")
    state.write_file("/src/data.bin", b"\x00import")
    state.write_file("/readme.md", "nothing")
    state.make_directory("/empty")
    state.make_directory("/empty")
    state.make_directory("/kept")
    looked = ("/", "/src", "/src/a.py", "/empty", "/no")
    said["stat"] = [getattr(state.stat_file(path), "kind", None) for path in looked]
    said["list"] = [(entry.path, entry.kind) for entry in state.list_files("/src").entries]
    said["root"] = [entry.path for entry in state.list_files().entries]
    said["stream"] = b"".join(state.stream_file("/src/deep/b.py")).decode()
    said["grep"] = [(match.path, match.line, match.text) for match in state.grep_files("import", "/src").matches]
    said["grep one"] = [match.line for match in state.grep_files("print", "/src/a.py").matches]
    said["find"] = state.find_files("*.py").paths
    said["find below"] = state.find_files("**/b.*", "/src").paths
    state.remove_directory("/empty")
    state.delete_file("/readme.md")
    said["left"] = [entry.path for entry in state.list_files("/").entries]
    return said


def test_a_tool_has_all_of_files(world: Worlds) -> None:
    its = settled_in(world("everything"), _everything)
    run_tool(its)
    outcome, said = result(its)
    assert outcome == "ok", said
    assert said == {
        "written": "file",
        "stat": ["directory", "directory", "file", "directory", None],
        "list": [["/src/a.py", "file"], ["/src/data.bin", "file"], ["/src/deep", "directory"]],
        "root": ["/empty", "/kept", "/readme.md", "/src"],
        "stream": "import sys\n",
        "grep": [["/src/a.py", 1, "import os"], ["/src/deep/b.py", 1, "import sys"]],
        "grep one": [2],
        "find": ["/src/a.py", "/src/deep/b.py"],
        "find below": ["/src/deep/b.py"],
        "left": ["/kept", "/src"],
    }
    assert agreement(its) == []


BAD: list[tuple[Callable[[ThreadState], Any], str]] = [
    (lambda state: state.write_file("/../t-10/x", "x"), "ValueError: path: must not contain `..`"),
    (lambda state: state.read_file("a.txt"), "ValueError: path: must be absolute: begin with `/`"),
    (lambda state: state.read_file("/no"), "FileNotFoundError: There is no file at that path."),
    (lambda state: state.delete_file("/no"), "FileNotFoundError: There is no file at that path."),
    (lambda state: state.remove_directory("/no"), "FileNotFoundError: There is no such folder."),
    (lambda state: state.remove_directory("/dir"), "ValueError: path: `/dir` is not empty"),
    (lambda state: state.write_file("/dir", "x"), "ValueError: path: `/dir` is a folder"),
    (lambda state: state.write_file("/dir/in.txt/x", "x"), "ValueError: path: `/dir/in.txt` is a file, "),
    (lambda state: state.make_directory("/dir/in.txt"), "ValueError: path: `/dir/in.txt` is a file"),
    (lambda state: state.make_directory("/dir/in.txt/x"), "ValueError: path: `/dir/in.txt` is a file, "),
    (lambda state: state.find_files(""), "ValueError: pattern: must have 1 to 1024 characters"),
]


def test_what_a_tool_does_wrong_is_an_error_of_python_and_changes_nothing(world: Worlds) -> None:
    def use(state: ThreadState, arguments: Mapping[str, Any]) -> Any:
        state.write_file("/dir/in.txt", "x")
        said = []
        for wrong, _ in BAD:
            try:
                said.append(repr(wrong(state)))
            except (OSError, ValueError) as error:
                said.append(f"{type(error).__name__}: {error}")
        return said

    its = settled_in(world("wrong"), use)
    run_tool(its)
    outcome, said = result(its)
    assert outcome == "ok"
    assert [line for line, (_, wanted) in zip(said, BAD, strict=True) if not line.startswith(wanted)] == []
    assert changes(its) == [("/dir/in.txt", "created")]


def test_reads_of_a_tool_cost_one_query_and_one_object(world: Worlds) -> None:
    its = world("costs")
    costs: dict[str, list[str]] = {}

    def use(state: ThreadState, arguments: Mapping[str, Any]) -> Any:
        def cost(name: str, do: Callable[[], Any]) -> None:
            before = len(its.tap.calls)
            do()
            costs[name] = its.tap.calls[before:]

        cost("create", lambda: state.write_file("/a.txt", "x"))
        cost("replace", lambda: state.write_file("/a.txt", "y"))
        cost("same", lambda: state.write_file("/a.txt", "y"))
        cost("read", lambda: state.read_file("/a.txt"))
        cost("stat", lambda: state.stat_file("/a.txt"))
        cost("list", lambda: state.list_files("/"))
        cost("find", lambda: state.find_files("*"))
        cost("grep", lambda: state.grep_files("y"))
        cost("delete", lambda: state.delete_file("/a.txt"))

    settled_in(its, use)
    run_tool(its)
    query, commit = "dynamodb.Query", "dynamodb.TransactWriteItems"
    assert costs == {
        "create": ["s3.PutObject", query, query, commit],
        "replace": ["s3.PutObject", query, commit],
        "same": ["s3.PutObject", query],
        "read": [query, "s3.GetObject"],
        "stat": [query],
        "list": [query],
        "find": [query],
        "grep": [query, "s3.GetObject"],
        "delete": [query, commit],
    }

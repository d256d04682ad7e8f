"""Each file in examples/ is run as its first lines say, against the real product or the real store."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from chalicelib.agents import AGENTS
from chalicelib.bootstrap import House
from chalicelib.domain.commands import CreateThread, Level, Principal, Say
from chalicelib.domain.ids import thread_ref
from chalicelib.settings import read
from examples.librarian import librarian
from infra.local import resources
from infra.local.options import ROOT
from tests.journeys.product import DEADLINE_SECONDS, Product

EXAMPLES = ROOT / "examples"


def follow(product: Product, question: str, key: str | None = None) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, str(EXAMPLES / "follow.py"), question],
        env={**os.environ, "TURNLOG_URL": product.url, "TURNLOG_KEY": key or product.key},
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )


def test_the_client_prints_a_streamed_answer_once_and_to_its_end(product: Product) -> None:
    done = follow(product, "count to 40")
    assert done.stdout.split() == [*map(str, range(1, 41)), "run.completed:", "stop_on_response"], done.stderr
    assert done.returncode == 0


def test_the_client_shows_what_a_tool_answered(product: Product) -> None:
    done = follow(product, "What is 6 * 7?")
    assert done.stdout.splitlines() == [
        "[calculate: ok, 42]",
        "I asked `calculate` and it answered 42.",
        "run.completed: stop_on_response",
    ], done.stderr


def test_the_client_says_that_its_key_is_wrong(product: Product) -> None:
    done = follow(product, "hello", key=product.key[:-1])
    assert done.returncode != 0
    assert "Unauthorized" in done.stderr


@pytest.fixture
def library(aws_env: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> House:
    """The house over fresh resources, with the example in the place where the documents put it."""
    made = resources.create(aws_env["AWS_ENDPOINT_URL"], "library")
    given = {
        "TURNLOG_STAGE": "test",
        "TURNLOG_TABLE": made.table,
        "TURNLOG_QUEUE_URL": made.queue_url,
        "TURNLOG_BUCKET": made.bucket,
        "TURNLOG_SOCKET_ENDPOINT": "http://127.0.0.1:1/_sockets",
        "TURNLOG_SOCKET_URL": "ws://127.0.0.1:1/ws",
        "TURNLOG_SECRET": "s" * 32,
        "TURNLOG_MODEL": "offline:echo",
    }
    monkeypatch.setitem(AGENTS, librarian.name, librarian)
    return House(read({**aws_env, **given}))


def asked(house: House, question: str) -> list[str]:
    """A turn of the librarian, played to its end; what its messages say."""
    librarys = Principal(org="org_library", key_id="key_1", level=Level.MEMBER)
    say = Say(content=({"type": "text", "text": question},), metadata={})
    ask = CreateThread(agent="librarian", arguments={"library": "the town library"}, message=say)
    made = house.accept.create_thread(librarys, ask, None)
    thread_id = made.body["thread"]["id"]
    ref = thread_ref(librarys.org, thread_id)
    assert ref is not None
    house.take_turn.run(ref, lambda: 900.0)
    page = house.read.messages(librarys, thread_id, descending=False, silent=False, limit=50, position=None)
    return [f"{message['role']}: {part}" for message in page.items for part in map(words, message["content"])]


def words(part: dict[str, object]) -> object:
    return part.get("text") or part.get("content") or part.get("arguments")


def test_the_librarian_looks_a_book_up_before_it_answers(library: House) -> None:
    told = asked(library, 'Where do I find the book "Walden"?')
    assert told[1:3] == ["assistant: {'title': 'Walden'}", "tool: {'title': 'Walden', 'shelf': 'T1'}"]
    assert "T1" in told[3]


def test_the_librarian_tells_the_model_of_a_book_that_is_not_there(library: House) -> None:
    told = asked(library, 'Where do I find the book "Moby Dick"?')
    assert told[2] == "tool: There is no book with the title 'Moby Dick'."


def test_every_example_is_run_here() -> None:
    source = Path(__file__).read_text()
    files = {file.stem for file in EXAMPLES.glob("*.py")} - {"__init__"}
    assert {name for name in files if f"{name}.py" not in source and f"examples.{name} " not in source} == set()

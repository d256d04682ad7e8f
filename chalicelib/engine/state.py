"""What a tool sees of its thread: `ThreadState`. Agent code depends on this page and on `engine.agent` only."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from chalicelib.engine.asking import Asker
from chalicelib.engine.files import Entry
from chalicelib.engine.notes import Notebook
from chalicelib.engine.run_files import Found, Grep, Listing, RunFiles
from chalicelib.ports import Cancel


@dataclass(frozen=True, kw_only=True)
class ThreadState:
    """Handed to a tool whose first parameter is annotated with it.

    `idempotency_token` is the same whenever this very call runs again after a crash: give it to services that take one.
    """

    thread_id: str
    run_id: str
    call_id: str
    idempotency_token: str
    arguments: Mapping[str, Any]
    cancel: Cancel
    files: RunFiles | None = None
    """What the methods of files below go by."""
    notebook: Notebook | None = None
    """What `log` and the durable values go by."""
    asker: Asker | None = None
    """What `ask` goes by."""

    def wait(self, seconds: float) -> bool:
        """Let time pass inside a tool; True as soon as the result is no longer wanted."""
        return self.cancel.wait(seconds)

    def ask(self, question: Any, options: Sequence[Any] = (), expires_in: float | None = None) -> Any:
        """Put a question to people; answers what they say. The run waits for it at no cost, however long that takes.

        Until there is an answer the code is left here, and then run again from its start: what stands before a question
        happens again. The second question of a call waits for the first. A message of the user in place of an answer,
        and `expires_in` seconds without one, end the call as `refused`. Only in tools.
        """
        if self.asker is None:
            raise RuntimeError("only a tool can ask: it can be set aside until there is an answer")
        return self.asker.ask(question, options, expires_in)

    # -- notes: visible with the run's next write, within 5 s; gone if the run is taken over by another attempt before

    def log(self, entry: Mapping[str, Any]) -> None:
        """Record an entry in the thread's log; only `name` is needed. Never raises, and starts nothing."""
        if self.notebook is not None:
            self.notebook.log(entry)

    def get_value(self, name: str, default: Any = None) -> Any:
        """A durable value of the thread, as this run has set it or as it is stored. At most one request."""
        return self._notebook.get(name, default)

    def set_value(self, name: str, value: Any) -> None:
        """Keep a value with the thread, of at most 64 KB of JSON. A bad name, or too large a value, is a ValueError."""
        self._notebook.set(name, value)

    # -- files: paths are absolute inside the thread. A bad one is a ValueError, a missing file a FileNotFoundError, a
    #    store that does not answer an OSError. Each read costs one query, and one request for each object

    def write_file(self, path: str, data: bytes | str, content_type: str | None = None) -> Entry:
        """Create or replace a file; it is stored when this returns. The same bytes again change nothing."""
        return self._files.write(path, data, content_type)

    def read_file(self, path: str) -> bytes:
        """A whole file."""
        return self._files.read(path)

    def stream_file(self, path: str) -> Iterator[bytes]:
        """A file in pieces of at most 1 MB."""
        return self._files.stream(path)

    def stat_file(self, path: str) -> Entry | None:
        """What is at a path: a file or a directory; None if nothing is."""
        return self._files.stat(path)

    def list_files(self, path: str = "/") -> Listing:
        """What is directly in a directory; `truncated` says that there is more."""
        return self._files.entries(path)

    def delete_file(self, path: str) -> None:
        """Remove a file."""
        self._files.delete(path)

    def make_directory(self, path: str) -> None:
        """Make a directory that stays when it is empty. One that holds a file needs no making."""
        self._files.make(path)

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory."""
        self._files.remove(path)

    def grep_files(self, text: str, path: str = "/") -> Grep:
        """Lines of text files below a path that hold a text, literally; `truncated` says that a bound ended it."""
        return self._files.grep(text, path)

    def find_files(self, pattern: str, path: str = "/") -> Found:
        """Paths below a directory that fit `*.txt` (names) or `docs/**/*.md` (paths); `truncated` says there may be
        more.
        """
        return self._files.find(pattern, path)

    @property
    def _notebook(self) -> Notebook:
        if self.notebook is None:
            raise RuntimeError("this state was made without durable values")
        return self.notebook

    @property
    def _files(self) -> RunFiles:
        if self.files is None:
            raise RuntimeError("this state was made without files")
        return self.files

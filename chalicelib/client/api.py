"""The calls of the client: one method a route, over httpx.

It must not know how a socket works, only how to get a ticket for one. It guarantees that a mutation carries one
idempotency key over all its tries, that nothing is retried that cannot get better (409 and other refusals), and that
ids stay inside their path segment. One `Turnlog` may be shared by threads.
"""

import hashlib
import json
import os
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Literal, Self, cast
from urllib.parse import quote, urlsplit

import httpx

from chalicelib.client import files as file_calls
from chalicelib.client.errors import ConnectionFailed, Misused, problem
from chalicelib.client.pace import LONGEST_RETRY_AFTER_SECONDS, Pace, retry_after_seconds
from chalicelib.client.stream import PING_SECONDS, EventStream, is_loopback, socket_address
from chalicelib.client.wire import (
    JSON,
    Accepted,
    Child,
    Command,
    Content,
    Cost,
    Delivery,
    Event,
    EventPage,
    FileEntry,
    Inquiry,
    LogKind,
    LogLevel,
    LogRow,
    Message,
    Run,
    RunRoot,
    Step,
    Thread,
    Ticket,
)

DEFAULT_URL = "http://127.0.0.1:8000"  # where `make run` listens
RETRIES = 2
# Never 409: ours means busy, decided or reused. The others say that the same request may do well shortly.
RETRIED = frozenset({429, 502, 503, 504})
CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 30.0  # the HTTP gateway of AWS gives up after 29


class Turnlog:
    """One credential on one server; `url` and `key` default to TURNLOG_URL and TURNLOG_KEY.

    `transport`, or a whole `http_client` (which stays yours to close), replaces the network; `pace` replaces time and
    chance. `socket_hosts` are hosts that may serve the websocket besides the url's own.
    """

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        *,
        http_client: httpx.Client | None = None,
        transport: httpx.BaseTransport | None = None,
        retries: int = RETRIES,
        socket_hosts: Collection[str] = (),
        ping_seconds: float = PING_SECONDS,
        pace: Pace | None = None,
    ) -> None:
        self.url = _checked_url(url or os.environ.get("TURNLOG_URL") or DEFAULT_URL)
        self._key = _checked_key(key or os.environ.get("TURNLOG_KEY") or "")
        # A proxy of the environment must not see, or lose, what stays on this machine.
        self._through_proxy = not is_loopback(self.url)
        self._http = http_client or httpx.Client(transport=transport, trust_env=self._through_proxy)
        self._owns_http = http_client is None
        self._retries = retries
        self._socket_hosts = frozenset(socket_hosts)
        self._ping_seconds = ping_seconds
        self._pace = pace or Pace()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections, unless the http client was handed in. A second call does nothing."""
        if self._owns_http:
            self._http.close()

    # -- threads

    def create_thread(
        self,
        agent: str = "assistant",
        *,
        message: Content | Mapping[str, JSON] | None = None,
        title: str | None = None,
        arguments: Mapping[str, JSON] | None = None,
        tags: Sequence[str] | None = None,
        user: str | None = None,
        idempotency_key: str | None = None,
    ) -> Accepted:
        """A new thread and, if there is a message, its first run."""
        body = _given(agent=agent, message=message, title=title, arguments=arguments, tags=tags, user=user)
        return cast(Accepted, self._post("/threads", body, idempotency_key))

    def thread(self, thread_id: str) -> Thread:
        """The thread as it is now."""
        return cast(Thread, self._get(f"/threads/{_id(thread_id)}"))

    def threads(
        self, *, agent: str | None = None, tag: str | None = None, state: str | None = None, q: str | None = None
    ) -> Iterator[Thread]:
        """Root threads, newest activity first; `q` is searched for literally in titles and tags."""
        return self._pages("/threads", _given(agent=agent, tag=tag, state=state, q=q))

    def delete(self, thread_id: str) -> int:
        """Delete the thread for good; answers when (microseconds). Raises NotFound, also for one that was deleted."""
        return int(_parsed(self._send("DELETE", f"/threads/{_id(thread_id)}"))["deleted_at"])

    # -- what starts and stops work

    def say(
        self,
        thread_id: str,
        content: Content,
        *,
        delivery: Delivery | None = None,
        attachments: Sequence[Mapping[str, JSON]] | None = None,
        metadata: Mapping[str, JSON] | None = None,
        silent: bool | None = None,
        idempotency_key: str | None = None,
    ) -> Accepted:
        """Post a message. A second call with the same `idempotency_key` answers the ids of the first."""
        body = _given(content=content, delivery=delivery, attachments=attachments, metadata=metadata, silent=silent)
        return cast(Accepted, self._post(f"/threads/{_id(thread_id)}/messages", body, idempotency_key))

    def create_run(
        self,
        thread_id: str,
        input: Content,
        *,
        parent_run_id: str | None = None,
        model: str | None = None,
        delivery: Delivery | None = None,
        idempotency_key: str | None = None,
    ) -> Accepted:
        """A run of its own, by default after those that are queued."""
        body = _given(input=input, parent_run_id=parent_run_id, model=model, delivery=delivery)
        return cast(Accepted, self._post(f"/threads/{_id(thread_id)}/runs", body, idempotency_key))

    def cancel(self, run_id: str, *, idempotency_key: str | None = None) -> Accepted:
        """Ask one run to end. Asked again, or of a run that has ended, it changes nothing and answers the run."""
        return cast(Accepted, self._post(f"/runs/{_id(run_id)}/cancel", {}, idempotency_key))

    def stop(self, thread_id: str, *, all: bool = False, idempotency_key: str | None = None) -> dict[str, JSON]:
        """Cancel the run in flight; with `all` withdraw what is queued, too."""
        path = f"/threads/{_id(thread_id)}/stop{'?all=true' if all else ''}"
        return cast(dict[str, JSON], self._post(path, {}, idempotency_key))

    def continue_(self, thread_id: str, *, idempotency_key: str | None = None) -> Accepted:
        """Run the agent again without a new message."""
        return cast(Accepted, self._post(f"/threads/{_id(thread_id)}/continue", {}, idempotency_key))

    def terminate(self, thread_id: str, *, idempotency_key: str | None = None) -> Thread:
        """End the thread for good: it takes no more work. A second call changes nothing."""
        body = self._post(f"/threads/{_id(thread_id)}/terminate", {}, idempotency_key)
        return cast(Thread, cast(dict[str, JSON], body)["thread"])

    # -- people and children

    def questions(self, thread_id: str, *, open_only: bool = False) -> Iterator[Inquiry]:
        """Questions and approvals of the thread, oldest first."""
        return self._pages(f"/threads/{_id(thread_id)}/questions", {"state": "open"} if open_only else {})

    def answer(self, thread_id: str, question_id: str, answer: JSON, *, idempotency_key: str | None = None) -> Inquiry:
        """Answer a question. Raises Conflict if somebody else's answer won."""
        path = f"/threads/{_id(thread_id)}/questions/{_id(question_id)}/answer"
        return cast(Inquiry, self._post(path, {"answer": answer}, idempotency_key))

    def decide(
        self,
        thread_id: str,
        approval_id: str,
        *,
        approve: bool,
        reason: str | None = None,
        idempotency_key: str | None = None,
    ) -> Inquiry:
        """Allow a call, or refuse it. Raises Conflict if it is decided already."""
        body: dict[str, JSON] = {"decision": "approve" if approve else "reject"}
        path = f"/threads/{_id(thread_id)}/approvals/{_id(approval_id)}/decision"
        return cast(Inquiry, self._post(path, body | ({"reason": reason} if reason else {}), idempotency_key))

    def children(self, thread_id: str) -> Iterator[Child]:
        """The thread's registry, newest first: child threads and sessions."""
        return self._pages(f"/threads/{_id(thread_id)}/children", {})

    # -- files

    def put_file(self, thread_id: str, path: str, data: bytes, *, content_type: str | None = None) -> FileEntry:
        """Write a file of up to 100 MB. The same bytes again change nothing."""
        return file_calls.put(self, f"/threads/{_id(thread_id)}", path, data, content_type)

    def get_file(self, thread_id: str, path: str) -> bytes:
        """The bytes of a file."""
        return file_calls.get(self, f"/threads/{_id(thread_id)}", path)

    def list_files(self, thread_id: str, path: str = "/") -> Iterator[FileEntry]:
        """Files and directories that are directly in one."""
        return file_calls.entries(self, f"/threads/{_id(thread_id)}", path)

    def delete_file(self, thread_id: str, path: str) -> None:
        """Remove a file. Raises NotFound, also for one that was removed before."""
        file_calls.delete(self, f"/threads/{_id(thread_id)}", path)

    # -- log, cost, values

    def log(self, thread_id: str, entry: Mapping[str, JSON], *, idempotency_key: str | None = None) -> LogRow:
        """Record an entry in the thread's log; only `name` is needed. Answers its row. It starts nothing."""
        return cast(LogRow, self._post(f"/threads/{_id(thread_id)}/logs", entry, idempotency_key))

    def logs(
        self,
        thread_id: str,
        *,
        kind: LogKind | None = None,
        level: LogLevel | None = None,
        order: Literal["asc", "desc"] = "asc",
    ) -> Iterator[LogRow]:
        """Rows of the log: model calls, tool calls and entries of applications, in the order of their instants."""
        return self._pages(f"/threads/{_id(thread_id)}/logs", _given(kind=kind, level=level, order=order))

    def cost(self, thread_id: str) -> Cost:
        """What the thread has cost by now; of a deleted thread `total_cost` and `deleted_at` alone."""
        return cast(Cost, self._get(f"/threads/{_id(thread_id)}/cost"))

    def get_value(self, thread_id: str, name: str) -> JSON:
        """A durable value. Raises NotFound."""
        return self._get(f"/threads/{_id(thread_id)}/values/{_id(name)}")["value"]

    def set_value(self, thread_id: str, name: str, value: JSON) -> None:
        """Create or replace a durable value."""
        self._send("PUT", f"/threads/{_id(thread_id)}/values/{_id(name)}", body={"value": value})

    def delete_value(self, thread_id: str, name: str) -> None:
        """Remove a durable value. Raises NotFound, also for one that was removed before."""
        self._send("DELETE", f"/threads/{_id(thread_id)}/values/{_id(name)}")

    # -- what happened

    def messages(
        self, thread_id: str, *, order: Literal["asc", "desc"] = "asc", silent: bool = False
    ) -> Iterator[Message]:
        """All messages; with `silent` those too that only the model sees."""
        query = {"order": order} | ({"include": "silent"} if silent else {})
        return self._pages(f"/threads/{_id(thread_id)}/messages", query)

    def runs(self, thread_id: str) -> Iterator[Run]:
        """All runs of a thread."""
        return self._pages(f"/threads/{_id(thread_id)}/runs")

    def latest_runs(self) -> Iterator[RunRoot]:
        """Root threads with their latest run."""
        return self._pages("/runs")

    def run(self, run_id: str) -> Run:
        """The run as it is now."""
        return cast(Run, self._get(f"/runs/{_id(run_id)}"))

    def steps(self, run_id: str) -> Iterator[Step]:
        """The step lane of a run."""
        return self._pages(f"/runs/{_id(run_id)}/steps")

    def command(self, command_id: str) -> Command:
        """The command as it is now; of a message that joined, `run_id` is the run that took it."""
        return cast(Command, self._get(f"/commands/{_id(command_id)}"))

    def events(self, thread_id: str, after: int = 0, *, limit: int | None = None, wait: float = 0) -> EventPage:
        """One page of stored events. With `wait` (0..20 seconds) an empty page is held back until there is news."""
        query = _given(after=after, limit=limit, wait=wait or None)
        page = self._get(f"/threads/{_id(thread_id)}/events", query, seconds=ANSWER_SECONDS + wait)
        return EventPage(items=tuple(map(Event.parse, page["items"])), cursor=page["cursor"], status=page["status"])

    def stream(self, thread_id: str, after: int = 0, *, on_state: Callable[[str], None] | None = None) -> EventStream:
        """Events after a number, live, until you stop reading: see `EventStream`."""
        return EventStream(
            _id(thread_id),
            after,
            address=lambda: socket_address(self.url, self.ticket(), self._socket_hosts),
            on_state=on_state,
            pace=self._pace,
            first_tries=self._retries + 1,
            ping_seconds=self._ping_seconds,
            through_proxy=self._through_proxy,
        )

    def ticket(self) -> Ticket:
        """A fresh one-time ticket for a websocket; `stream` gets its own."""
        return cast(Ticket, self._send("POST", "/stream/tickets", body={}).json())

    def whole(self, event: Event) -> Event:
        """The event with each field that is stored apart (`ref, bytes, sha256, content_type`) put back in its place."""
        data = self._whole(event.thread_id, event.data)
        return event if data is event.data else replace(event, data=data)

    # -- the road

    def _whole(self, thread_id: str, value: Any) -> Any:
        if isinstance(value, list):
            return [self._whole(thread_id, part) for part in value]
        if not isinstance(value, dict):
            return value
        if {"ref", "bytes", "sha256", "content_type"} <= value.keys():
            return self._blob(thread_id, value)
        parts = {name: self._whole(thread_id, part) for name, part in value.items()}
        return value if parts == value else parts

    def _blob(self, thread_id: str, stub: Mapping[str, Any]) -> JSON:
        path = f"/threads/{_id(thread_id)}/blobs/{_id(str(stub['ref']))}"
        raw = self._send("GET", path, follow=True).content
        if hashlib.sha256(raw).hexdigest() != stub["sha256"]:
            raise ConnectionFailed(f"what came for {stub['ref']} is not what was stored")
        text = raw.decode("utf-8", "replace")
        return json.loads(text) if "json" in str(stub["content_type"]) else text

    def _get(self, path: str, query: Mapping[str, Any] | None = None, *, seconds: float = ANSWER_SECONDS) -> Any:
        return _parsed(self._send("GET", path, query=query, seconds=seconds))

    def _post(self, path: str, body: Mapping[str, JSON], idempotency_key: str | None) -> Any:
        return _parsed(self._send("POST", path, body=body, key=idempotency_key or uuid.uuid4().hex))

    def _pages(self, path: str, query: Mapping[str, Any] | None = None) -> Iterator[Any]:
        cursor: dict[str, Any] = {}
        while True:
            page = self._get(path, {**(query or {}), **cursor})
            yield from page["items"]
            if not page.get("next_cursor"):
                return
            cursor = {"cursor": page["next_cursor"]}

    def _send(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Mapping[str, JSON] | None = None,
        raw: bytes | None = None,
        content_type: str | None = None,
        key: str | None = None,
        seconds: float = ANSWER_SECONDS,
        follow: bool = False,
    ) -> httpx.Response:
        """Send, and send again what may do well shortly; the same request each time, so the same idempotency key."""
        request = self._http.build_request(
            method,
            f"{self.url}/api{path}",
            params=query,
            content=raw if body is None else _encoded(body),
            headers=self._headers(content_type if body is None else "application/json", key),
            timeout=httpx.Timeout(seconds, connect=CONNECT_SECONDS),
        )
        for failures in range(1, self._retries + 2):
            try:
                answer = self._http.send(request, follow_redirects=follow)
            except httpx.TransportError as error:
                if failures > self._retries:
                    raise ConnectionFailed(f"no answer from {self.url}: {_why(error)}") from error
                wait = self._pace.backoff_seconds(failures)
            else:
                if answer.is_success:
                    return answer
                wait = self._wait_after(answer, failures)
            self._pace.sleep(wait)
        raise AssertionError("the last try answers or raises")

    def _wait_after(self, answer: httpx.Response, failures: int) -> float:
        """Seconds until the next try of a refused request, or its error if there is to be none."""
        asked = retry_after_seconds(answer.headers.get("retry-after"))
        hopeless = answer.status_code not in RETRIED or failures > self._retries
        if hopeless or (asked or 0) > LONGEST_RETRY_AFTER_SECONDS:
            raise problem(
                _json_or_none(answer),
                answer.status_code,
                request_id=answer.headers.get("turnlog-request-id"),
                retry_after=asked,
            )
        return self._pace.backoff_seconds(failures) if asked is None else asked

    def _headers(self, content_type: str | None, key: str | None) -> dict[str, str]:
        return _given(
            **{
                "Accept": "application/json",
                "Authorization": f"Bearer {self._key}" if self._key else None,
                "Content-Type": content_type,
                "Idempotency-Key": key,
            }
        )


def _given(**fields: Any) -> dict[str, Any]:
    """Only what was said: the server's defaults stay the server's."""
    return {name: value for name, value in fields.items() if value is not None}


def _checked_url(url: str) -> str:
    base = url.strip().rstrip("/").removesuffix("/api")
    try:
        parts, _ = urlsplit(base), httpx.URL(base)
    except (ValueError, httpx.InvalidURL) as error:
        raise Misused(f"{url!r} is not an address") from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise Misused(f"{url!r} is not an http or https address")
    return base


def _checked_key(key: str) -> str:
    if not key.strip().isascii() or not key.strip().isprintable():
        raise Misused("the key holds characters that no key has")
    return key.strip()


def _id(value: str) -> str:
    """An id as one path segment: an empty one, or dots, would name another route."""
    if not isinstance(value, str) or not value.strip("."):
        raise Misused(f"{value!r} is not an id")
    try:
        return quote(value, safe="")
    except UnicodeEncodeError as error:
        raise Misused(f"{value!r} is not an id") from error


def _encoded(body: Mapping[str, JSON]) -> bytes:
    """ASCII JSON, so that a half character reaches the server's own check; NaN has no JSON."""
    try:
        return json.dumps(body, allow_nan=False).encode("ascii")
    except (TypeError, ValueError, RecursionError) as error:
        raise Misused(f"the body has no JSON form: {error}") from error


def _parsed(answer: httpx.Response) -> Any:
    body = _json_or_none(answer)
    if not isinstance(body, dict):
        raise ConnectionFailed(f"{answer.request.url.host} answers, but not with a JSON object: is it Turnlog?")
    return body


def _json_or_none(answer: httpx.Response) -> Any:
    try:
        return answer.json()
    except ValueError:
        return None


def _why(error: httpx.TransportError) -> str:
    return str(error) or type(error).__name__

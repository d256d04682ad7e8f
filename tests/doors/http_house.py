"""A house of cardboard behind the real HTTP door: it notes what it was asked and answers fixed values.

It fits `chalicelib.doors.http.house.House`; mypy checks that. Tests read `calls` only to say that a refused request
reached nothing, or what a request became.
"""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import app as doors
from chalicelib.domain.commands import (
    Answer,
    AnswerQuestion,
    Call,
    CreateRun,
    CreateThread,
    Decide,
    Idempotency,
    Level,
    Page,
    PatchMessage,
    PatchThread,
    Principal,
    Say,
    StartUpload,
    Upload,
    WriteLog,
)
from chalicelib.domain.errors import Unauthorized
from chalicelib.domain.model import File
from chalicelib.doors.application import Application
from chalicelib.services.call_endpoint import Called
from chalicelib.services.files import FileContent

TOKENS = {
    "member-of-a": Principal(org="org_a", key_id="key_a", level=Level.MEMBER),
    "viewer-of-a": Principal(org="org_a", key_id="key_v", level=Level.VIEWER),
    "member-of-b": Principal(org="org_b", key_id="key_b", level=Level.MEMBER),
}


@dataclass
class Settings:
    stage: str = "test"
    version: str = "1.2.3"
    secret: bytes = b"a secret of tests"


@dataclass
class CardboardHouse:
    """All services in one object. `page` is what lists answer, `fails` is raised by every service but `verify`."""

    settings: Settings = field(default_factory=Settings)
    page: Page = field(default_factory=lambda: Page(items=[{"id": "one"}], next=None))
    fails: Exception | None = None
    answer: Answer = field(default_factory=lambda: Answer(status=201, body={"made": True}))
    stored: bytes = b'{"large": "field"}'
    stored_type: str = "application/json"
    file: FileContent = field(default_factory=lambda: file_content(b"bytes"))
    called: Called = field(default_factory=lambda: Called(status=200, body={"said": 1}, headers={"X-Own": "yes"}))
    calls: list[tuple[Any, ...]] = field(default_factory=list)

    @property
    def accept(self) -> "CardboardHouse":
        return self

    @property
    def cancel(self) -> "CardboardHouse":
        return self

    @property
    def delete(self) -> "CardboardHouse":
        return self

    @property
    def people(self) -> "CardboardHouse":
        return self

    @property
    def edit(self) -> "CardboardHouse":
        return self

    @property
    def files(self) -> "CardboardHouse":
        return self

    @property
    def logs(self) -> "CardboardHouse":
        return self

    @property
    def cost(self) -> "CardboardHouse":
        return self

    @property
    def durable(self) -> "CardboardHouse":
        return self

    @property
    def endpoints(self) -> "CardboardHouse":
        return self

    @property
    def read(self) -> "CardboardHouse":
        return self

    @property
    def credentials(self) -> "CardboardHouse":
        return self

    @property
    def tickets(self) -> "CardboardHouse":
        return self

    def verify(self, token: str, /) -> Principal:
        if token not in TOKENS:
            raise Unauthorized
        return TOKENS[token]

    def _note(self, *call: Any) -> None:
        self.calls.append(call)
        if self.fails:
            raise self.fails

    def create_thread(self, p: Principal, ask: CreateThread, idem: Idempotency | None, /) -> Answer:
        self._note("create_thread", p, ask, idem)
        return self.answer

    def post_message(self, p: Principal, thread_id: str, ask: Say, idem: Idempotency | None, /) -> Answer:
        self._note("post_message", p, thread_id, ask, idem)
        return self.answer

    def create_run(self, p: Principal, thread_id: str, ask: CreateRun, idem: Idempotency | None, /) -> Answer:
        self._note("create_run", p, thread_id, ask, idem)
        return self.answer

    def continue_thread(self, p: Principal, thread_id: str, idem: Idempotency | None, /) -> Answer:
        self._note("continue_thread", p, thread_id, idem)
        return self.answer

    def cancel_run(self, p: Principal, run_id: str, idem: Idempotency | None, /) -> Answer:
        self._note("cancel_run", p, run_id, idem)
        return self.answer

    def stop(self, p: Principal, thread_id: str, everything: bool, idem: Idempotency | None, /) -> Answer:
        self._note("stop", p, thread_id, everything, idem)
        return self.answer

    def terminate(self, p: Principal, thread_id: str, idem: Idempotency | None, /) -> Answer:
        self._note("terminate", p, thread_id, idem)
        return self.answer

    def delete_thread(self, p: Principal, thread_id: str, /) -> Answer:
        self._note("delete_thread", p, thread_id)
        return self.answer

    def list_inquiries(self, p: Principal, thread_id: str, /, *, open_only: bool, limit: int, position: Any) -> Page:
        self._note("list_inquiries", p, thread_id, open_only, limit, position)
        return self.page

    def answer_question(
        self, p: Principal, thread_id: str, question_id: str, ask: AnswerQuestion, idem: Idempotency | None, /
    ) -> Answer:
        self._note("answer_question", p, thread_id, question_id, ask, idem)
        return self.answer

    def decide(
        self, p: Principal, thread_id: str, approval_id: str, ask: Decide, idem: Idempotency | None, /
    ) -> Answer:
        self._note("decide", p, thread_id, approval_id, ask, idem)
        return self.answer

    def patch_thread(self, p: Principal, thread_id: str, ask: PatchThread, /) -> Any:
        self._note("patch_thread", p, thread_id, ask)
        return {"id": thread_id}

    def patch_message(self, p: Principal, thread_id: str, message_id: str, ask: PatchMessage, /) -> Any:
        self._note("patch_message", p, thread_id, message_id, ask)
        return {"id": message_id}

    def delete_message(self, p: Principal, thread_id: str, message_id: str, /) -> None:
        self._note("delete_message", p, thread_id, message_id)

    def thread(self, p: Principal, thread_id: str, include: frozenset[str], /) -> Any:
        self._note("thread", p, thread_id, include)
        part = {"items": self.page.items, "position": self.page.next}
        parts = {name: {**part, "run_id": "run_1"} if name == "steps" else part for name in include}
        return {"id": thread_id, "title": None, **parts}

    def children(self, p: Principal, thread_id: str, /, *, limit: int, position: Any) -> Page:
        self._note("children", p, thread_id, limit, position)
        return self.page

    def threads(
        self,
        p: Principal,
        /,
        *,
        agent: str | None,
        tag: str | None,
        state: str | None,
        q: str | None,
        limit: int,
        position: Any,
    ) -> Page:
        self._note("threads", p, agent, tag, state, q, limit, position)
        return self.page

    def messages(
        self, p: Principal, thread_id: str, /, *, descending: bool, silent: bool, limit: int, position: Any
    ) -> Page:
        self._note("messages", p, thread_id, descending, silent, limit, position)
        return self.page

    def roots(self, p: Principal, /, *, limit: int, position: Any) -> Page:
        self._note("roots", p, limit, position)
        return self.page

    def runs(self, p: Principal, thread_id: str, /, *, limit: int, position: Any) -> Page:
        self._note("runs", p, thread_id, limit, position)
        return self.page

    def run(self, p: Principal, run_id: str, /) -> Any:
        self._note("run", p, run_id)
        return {"id": run_id}

    def steps(self, p: Principal, run_id: str, /, *, limit: int, position: Any) -> Page:
        self._note("steps", p, run_id, limit, position)
        return self.page

    def command(self, p: Principal, command_id: str, /) -> Any:
        self._note("command", p, command_id)
        return {"id": command_id}

    def command_by_key(self, p: Principal, key: str, /) -> Any:
        self._note("command_by_key", p, key)
        return {"idempotency_key": key}

    def events(self, p: Principal, thread_id: str, /, *, after: int, limit: int, wait: float) -> Any:
        self._note("events", p, thread_id, after, limit, wait)
        return {"items": [], "cursor": after, "status": {"state": "idle"}}

    def blob(self, p: Principal, thread_id: str, ref: str, /) -> tuple[bytes, str]:
        self._note("blob", p, thread_id, ref)
        return self.stored, self.stored_type

    def blob_address(self, p: Principal, thread_id: str, ref: str, /) -> str:
        self._note("blob_address", p, thread_id, ref)
        return f"http://127.0.0.1:1/{ref}?signed"

    def get_file(self, p: Principal, thread_id: str, path: str, /) -> FileContent:
        self._note("get_file", p, thread_id, path)
        return self.file

    def file_address(self, p: Principal, thread_id: str, file: File, headers: dict[str, str], /) -> str:
        self._note("file_address", p, thread_id, file, headers)
        return "http://127.0.0.1:1/object?signed"

    def list_files(self, p: Principal, thread_id: str, folder: str, /, *, limit: int, position: Any) -> Page:
        self._note("list_files", p, thread_id, folder, limit, position)
        return self.page

    def put_file(self, p: Principal, thread_id: str, path: str, data: bytes, content_type: str, /) -> Answer:
        self._note("put_file", p, thread_id, path, data, content_type)
        return self.answer

    def start_upload(self, p: Principal, thread_id: str, ask: StartUpload, idem: Idempotency | None, /) -> Answer:
        self._note("start_upload", p, thread_id, ask, idem)
        body = {"upload": Upload(nonce="nonce", ask=ask), "url": "http://127.0.0.1:1/put", "headers": {}}
        return Answer(status=self.answer.status, body={**body, "expires_at": 1}, replayed=self.answer.replayed)

    def finish_upload(self, p: Principal, thread_id: str, path: str, upload: Upload, /) -> Answer:
        self._note("finish_upload", p, thread_id, path, upload)
        return self.answer

    def delete_file(self, p: Principal, thread_id: str, path: str, /) -> None:
        self._note("delete_file", p, thread_id, path)

    def write_log(self, p: Principal, thread_id: str, ask: WriteLog, idem: Idempotency | None, /) -> Answer:
        self._note("write_log", p, thread_id, ask, idem)
        return self.answer

    def list_logs(
        self,
        p: Principal,
        thread_id: str,
        /,
        *,
        kind: str | None,
        level: str | None,
        descending: bool,
        limit: int,
        position: Any,
    ) -> Page:
        self._note("list_logs", p, thread_id, kind, level, descending, limit, position)
        return self.page

    def thread_cost(self, p: Principal, thread_id: str, /) -> Any:
        self._note("thread_cost", p, thread_id)
        return {"total_cost": 0.0}

    def get_value(self, p: Principal, thread_id: str, name: str, /) -> Any:
        self._note("get_value", p, thread_id, name)
        return 1

    def put_value(self, p: Principal, thread_id: str, name: str, value: Any, /) -> Any:
        self._note("put_value", p, thread_id, name, value)
        return value

    def delete_value(self, p: Principal, thread_id: str, name: str, /) -> None:
        self._note("delete_value", p, thread_id, name)

    def call_endpoint(self, p: Principal, thread_id: str, name: str, call: Call, /) -> Called:
        self._note("call_endpoint", p, thread_id, name, call)
        return self.called

    def agents(self, p: Principal, /) -> list[Any]:
        self._note("agents", p)
        return [{"name": "assistant"}]

    def issue(self, p: Principal, /) -> Mapping[str, Any]:
        self._note("issue", p)
        return {"ticket": "t", "url": "ws://127.0.0.1:1/ws", "expires_at": 1}


def file_content(data: bytes | None, path: str = "/a.txt", content_type: str = "text/plain") -> FileContent:
    """A stored file, with its bytes or (None) with more than an answer holds."""
    row = File(path=path, bytes=5, sha256="5" * 64, content_type=content_type, created_at=1, updated_at=2)
    return FileContent(file=row, data=data)


#: Query fields without which a route answers 400.
NEEDED: Mapping[str, Mapping[str, str]] = {
    "GET /commands": {"idempotency_key": "k"},
    **{f"{method} /threads/{{thread_id}}/files": {"path": "/a.txt"} for method in ("GET", "PUT", "DELETE")},
}


@dataclass(frozen=True, kw_only=True)
class Reply:
    """A proxy answer as a client reads it; header names in lower case."""

    status: int
    headers: Mapping[str, str]
    raw: bytes

    @property
    def body(self) -> Any:
        return json.loads(self.raw)

    @property
    def paths(self) -> list[str]:
        """Where the problem says that the faults are."""
        return [error["path"] for error in self.body.get("errors", [])]

    def is_problem(self, status: int, name: str) -> bool:
        """Whether this is a whole RFC 9457 problem of this kind."""
        told = self.body
        return (
            (self.status, told["status"], told["type"]) == (status, status, f"/problems/{name}")
            and bool(told["title"] and told["detail"])
            and self.headers["content-type"] == "application/problem+json"
        )


@dataclass(frozen=True, kw_only=True)
class Door:
    """The application of app.py with another house behind it."""

    house: CardboardHouse
    app: Application

    def send(
        self,
        route: str,
        *,
        body: Any = None,
        raw: bytes | None = None,
        query: Mapping[str, str | list[str]] | None = None,
        headers: Mapping[str, str] | None = None,
        token: str | None = "member-of-a",
        ids: Mapping[str, str] | None = None,
    ) -> Reply:
        """`route` is a method and a template (`GET /threads/{thread_id}`); its ids are `<name>-1` unless given."""
        return self.handle(event(route, body=body, raw=raw, query=query, headers=headers, token=token, ids=ids))

    def handle(self, raw_event: Mapping[str, Any]) -> Reply:
        """The reply to a raw proxy event."""
        answer = self.app(raw_event, None)
        body = answer["body"]
        return Reply(
            status=answer["statusCode"],
            headers={name.lower(): value for name, value in answer["headers"].items()},
            raw=base64.b64decode(body) if answer["isBase64Encoded"] else body.encode(),
        )


def open_door(house: CardboardHouse | None = None) -> Door:
    """A door with a house of its own."""
    behind = house or CardboardHouse()
    twin = Application("turnlog", house=lambda: behind)
    twin.routes = doors.app.routes
    return Door(house=behind, app=twin)


def event(
    route: str,
    *,
    body: Any = None,
    raw: bytes | None = None,
    query: Mapping[str, str | list[str]] | None = None,
    headers: Mapping[str, str] | None = None,
    token: str | None = "member-of-a",
    ids: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """A REST proxy event (version 1) as API Gateway sends it with binary media types `*/*`."""
    method, _, template = route.partition(" ")
    content = json.dumps(body).encode() if raw is None and body is not None else raw
    sent = {**({"Authorization": f"Bearer {token}"} if token else {}), **(headers or {})}
    if content is not None and not any(name.lower() == "content-type" for name in sent):
        sent["Content-Type"] = "application/json"
    several = {name: [value] if isinstance(value, str) else value for name, value in (query or {}).items()}
    names = [part[1:-1] for part in template.split("/") if part.startswith("{")]
    return {
        "resource": f"/api{template}",
        "path": f"/api{template}",
        "httpMethod": method,
        "headers": sent,
        "multiValueHeaders": {name: [value] for name, value in sent.items()},
        "queryStringParameters": {name: values[-1] for name, values in several.items()} or None,
        "multiValueQueryStringParameters": several or None,
        "pathParameters": {name: f"{name}-1" for name in names} | dict(ids or {}) or None,
        "stageVariables": None,
        "requestContext": {"resourcePath": f"/api{template}", "httpMethod": method, "stage": "live"},
        "body": base64.b64encode(content).decode() if content else None,
        "isBase64Encoded": bool(content),
    }

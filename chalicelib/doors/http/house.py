"""What the HTTP door needs from the house, as Protocols: the services by their verbs, and three settings.

`bootstrap.house()` fits it, and so does a small fake in a test. Ids, org and rights are the services' to decide: they
raise `Refusal`, and the door passes it on.
"""

from collections.abc import Mapping
from typing import Any, Protocol

from chalicelib.domain.commands import (
    Answer,
    AnswerQuestion,
    Call,
    CreateRun,
    CreateThread,
    Decide,
    Idempotency,
    Page,
    PatchMessage,
    PatchThread,
    Principal,
    Say,
    StartUpload,
    Upload,
    WriteLog,
)
from chalicelib.domain.model import File
from chalicelib.services.call_endpoint import Called
from chalicelib.services.files import FileContent

Json = Any


class Accept(Protocol):
    """The one door of commands."""

    def create_thread(self, p: Principal, ask: CreateThread, idem: Idempotency | None, /) -> Answer: ...
    def post_message(self, p: Principal, thread_id: str, ask: Say, idem: Idempotency | None, /) -> Answer: ...
    def create_run(self, p: Principal, thread_id: str, ask: CreateRun, idem: Idempotency | None, /) -> Answer: ...
    def continue_thread(self, p: Principal, thread_id: str, idem: Idempotency | None, /) -> Answer: ...


class Cancel(Protocol):
    """Ends work."""

    def cancel_run(self, p: Principal, run_id: str, idem: Idempotency | None, /) -> Answer: ...
    def stop(self, p: Principal, thread_id: str, everything: bool, idem: Idempotency | None, /) -> Answer: ...
    def terminate(self, p: Principal, thread_id: str, idem: Idempotency | None, /) -> Answer: ...


class Delete(Protocol):
    """Deletion."""

    def delete_thread(self, p: Principal, thread_id: str, /) -> Answer: ...


class People(Protocol):
    """Questions and approvals."""

    def list_inquiries(
        self, p: Principal, thread_id: str, /, *, open_only: bool, limit: int, position: Json
    ) -> Page: ...
    def answer_question(
        self, p: Principal, thread_id: str, question_id: str, ask: AnswerQuestion, idem: Idempotency | None, /
    ) -> Answer: ...
    def decide(
        self, p: Principal, thread_id: str, approval_id: str, ask: Decide, idem: Idempotency | None, /
    ) -> Answer: ...


class Edit(Protocol):
    """Changes that start and stop nothing."""

    def patch_thread(self, p: Principal, thread_id: str, ask: PatchThread, /) -> Json: ...
    def patch_message(self, p: Principal, thread_id: str, message_id: str, ask: PatchMessage, /) -> Json: ...
    def delete_message(self, p: Principal, thread_id: str, message_id: str, /) -> None: ...


class Read(Protocol):
    """Views. A position is what an earlier `Page.next` held, None for the first page."""

    def thread(self, p: Principal, thread_id: str, include: frozenset[str], /) -> Json: ...
    def children(self, p: Principal, thread_id: str, /, *, limit: int, position: Json) -> Page: ...
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
        position: Json,
    ) -> Page: ...
    def messages(
        self, p: Principal, thread_id: str, /, *, descending: bool, silent: bool, limit: int, position: Json
    ) -> Page: ...
    def roots(self, p: Principal, /, *, limit: int, position: Json) -> Page: ...
    def runs(self, p: Principal, thread_id: str, /, *, limit: int, position: Json) -> Page: ...
    def run(self, p: Principal, run_id: str, /) -> Json: ...
    def steps(self, p: Principal, run_id: str, /, *, limit: int, position: Json) -> Page: ...
    def command(self, p: Principal, command_id: str, /) -> Json: ...
    def command_by_key(self, p: Principal, key: str, /) -> Json: ...
    def events(self, p: Principal, thread_id: str, /, *, after: int, limit: int, wait: float) -> Json: ...
    def blob(self, p: Principal, thread_id: str, ref: str, /) -> tuple[bytes, str]: ...
    def blob_address(self, p: Principal, thread_id: str, ref: str, /) -> str: ...
    def agents(self, p: Principal, /) -> list[Json]: ...


class Files(Protocol):
    """Files of a thread. Paths come in their one form (`domain.paths`)."""

    def get_file(self, p: Principal, thread_id: str, path: str, /) -> FileContent: ...
    def file_address(self, p: Principal, thread_id: str, file: File, headers: dict[str, str], /) -> str: ...
    def list_files(self, p: Principal, thread_id: str, folder: str, /, *, limit: int, position: Json) -> Page: ...
    def put_file(self, p: Principal, thread_id: str, path: str, data: bytes, content_type: str, /) -> Answer: ...
    def start_upload(self, p: Principal, thread_id: str, ask: StartUpload, idem: Idempotency | None, /) -> Answer: ...
    def finish_upload(self, p: Principal, thread_id: str, path: str, upload: Upload, /) -> Answer: ...
    def delete_file(self, p: Principal, thread_id: str, path: str, /) -> None: ...


class Logs(Protocol):
    """The log of a thread."""

    def write_log(self, p: Principal, thread_id: str, ask: WriteLog, idem: Idempotency | None, /) -> Answer: ...
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
        position: Json,
    ) -> Page: ...


class Cost(Protocol):
    """What a thread has cost."""

    def thread_cost(self, p: Principal, thread_id: str, /) -> Json: ...


class Durable(Protocol):
    """Durable values of a thread."""

    def get_value(self, p: Principal, thread_id: str, name: str, /) -> Json: ...
    def put_value(self, p: Principal, thread_id: str, name: str, value: Json, /) -> Json: ...
    def delete_value(self, p: Principal, thread_id: str, name: str, /) -> None: ...


class Endpoints(Protocol):
    """Endpoints of agents, by name."""

    def call_endpoint(self, p: Principal, thread_id: str, name: str, call: Call, /) -> Called: ...


class Tickets(Protocol):
    """One-time websocket tickets."""

    def issue(self, p: Principal, /) -> Mapping[str, Json]: ...


class Credentials(Protocol):
    """Knows tokens; raises `Unauthorized` for one that is unknown, revoked or expired."""

    def verify(self, token: str, /) -> Principal: ...


class DoorSettings(Protocol):
    """The settings that the door itself reads. `secret` signs cursors."""

    @property
    def stage(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def secret(self) -> bytes: ...


class House(Protocol):
    """Everything behind the door."""

    @property
    def accept(self) -> Accept: ...
    @property
    def cancel(self) -> Cancel: ...
    @property
    def delete(self) -> Delete: ...
    @property
    def people(self) -> People: ...
    @property
    def edit(self) -> Edit: ...
    @property
    def files(self) -> Files: ...
    @property
    def logs(self) -> Logs: ...
    @property
    def cost(self) -> Cost: ...
    @property
    def durable(self) -> Durable: ...
    @property
    def endpoints(self) -> Endpoints: ...
    @property
    def read(self) -> Read: ...
    @property
    def credentials(self) -> Credentials: ...
    @property
    def tickets(self) -> Tickets: ...
    @property
    def settings(self) -> DoorSettings: ...

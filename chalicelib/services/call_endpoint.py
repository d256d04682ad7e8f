"""A request to an endpoint of an agent: its function runs here, with a state outside of any run, and leaves one row.

An endpoint runs each time it is asked; nothing of it is remembered. What it has stored stays, whatever it answers. What
it raises stands in the thread's log alone, without secrets.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from chalicelib.domain import entries, values
from chalicelib.domain.commands import Call, Principal
from chalicelib.domain.entries import LogRow
from chalicelib.domain.errors import (
    EndpointFailed,
    EndpointLate,
    EndpointProblem,
    MethodNotAllowed,
    NotFound,
    Refusal,
    RetryLater,
)
from chalicelib.domain.ids import ThreadRef
from chalicelib.domain.limits import RESPONSE_BYTES
from chalicelib.domain.model import About, Head
from chalicelib.engine import messages
from chalicelib.engine.agent import Agent
from chalicelib.engine.endpoints import Endpoint, Problem, Request, Response
from chalicelib.engine.workers import Flag
from chalicelib.services import guests
from chalicelib.services.appending import alive, known
from chalicelib.services.outside import Outside

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Called:
    """What an endpoint of an agent answers: status, safe JSON, headers of its own."""

    status: int
    body: Any
    headers: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class CallEndpoint:
    """Answers requests by code of agents."""

    outside: Outside
    agents: Mapping[str, Agent]

    def call_endpoint(self, p: Principal, thread_id: str, name: str, call: Call) -> Called:
        """What the endpoint answers. Raises NotFound for an unknown name, MethodNotAllowed, EndpointProblem,
        EndpointFailed, EndpointLate.
        """
        ref = known(p.org, thread_id)
        opened = self.outside.store.open(ref, about=True)
        head = alive(opened.head)
        if opened.about is None:
            raise NotFound
        agent = self.agents.get(head.agent)
        endpoint = _chosen(agent, name, call.method)
        assert agent is not None, "an endpoint was found in it"
        return self._answer(ref, head, opened.about, agent, endpoint, p, call)

    def _answer(
        self, ref: ThreadRef, head: Head, about: About, agent: Agent, endpoint: Endpoint, p: Principal, call: Call
    ) -> Called:
        clock, flag = self.outside.appender.clock, Flag()
        began, begun_at, token = clock.monotonic(), clock.now(), self.outside.appender.ids.token()
        state = self.outside.state(ref, head, about, agent, token=token, again=False, cancel=flag)
        answer: Called | None = None
        refusal: Refusal | None = None
        error: str | None = None
        try:
            returned = guests.run(lambda: endpoint.run(state, _request(p, call)), endpoint.timeout_seconds, flag)
            answer = self._shown(returned)
        except BaseException as raised:  # noqa: BLE001 - whatever an author's code raises is an answer
            error = self.outside.environment.hide_text(str(values.safe(raised)))
            refusal = _refusal(raised, error)
        body = entries.handler_body(
            name=f"{endpoint.method} {endpoint.name}",
            handler="endpoint",
            error=error,
            duration_ms=int((clock.monotonic() - began) * 1000),
            request={"body": self.outside.environment.safe(call.body)},
            response=None if answer is None else answer.body,
        )
        self._keep(ref, head, LogRow(key=entries.key(begun_at, f"x{token}"), kind="handler", at=begun_at, body=body))
        if refusal is not None:
            raise refusal
        assert answer is not None, "who is not refused is answered"
        return answer

    def _shown(self, returned: Any) -> Called:
        """An answer behind the border. Raises ValueError for one that is too large."""
        given = returned if isinstance(returned, Response) else Response(body=returned)
        body = self.outside.environment.safe(given.body)
        if values.size(body) > RESPONSE_BYTES:
            raise ValueError(f"the answer has more than {RESPONSE_BYTES} bytes")
        headers = {name: self.outside.environment.hide_text(text) for name, text in given.headers.items()}
        return Called(status=given.status, body=body, headers=headers)

    def _keep(self, ref: ThreadRef, head: Head, row: LogRow) -> None:
        """The row of a request. The answer stands even if its row cannot be stored."""
        store = self.outside.store
        try:
            anchored = LogRow(
                key=row.key, kind=row.kind, at=row.at, message_id=messages.newest(store, ref, head), body=row.body
            )
            store.log(ref, anchored, remember=None, now=row.at)
        except RetryLater:
            log.warning("a row was not stored", extra={"action": "entry_lost", "thread_id": ref.id})


def _chosen(agent: Agent | None, name: str, method: str) -> Endpoint:
    named = {one.method: one for one in agent.endpoints if one.name == name} if agent else {}
    if not named:
        raise NotFound("The agent of this thread has no endpoint of that name.")
    if method not in named:
        refusal = MethodNotAllowed("This endpoint does not know that method.")
        refusal.allow = tuple(sorted(named))
        raise refusal
    return named[method]


def _request(p: Principal, call: Call) -> Request:
    user = None if p.user is None else {"id": p.user, "handle": p.user, "roles": list(p.roles)}
    return Request(
        method=call.method, query=call.query, headers=call.headers, body=call.body, user=user, level=p.level.value
    )


def _refusal(raised: BaseException, text: str) -> Refusal:
    if isinstance(raised, Problem):
        return EndpointProblem(raised.status, text.partition(": ")[2] or "The endpoint gave no reason.")
    if isinstance(raised, guests.Late):
        return EndpointLate(f"The endpoint gave {raised}.")
    return EndpointFailed("The endpoint could not answer. The thread's log says why.")

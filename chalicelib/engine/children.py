"""Child threads: the tools that make and address them, played by the turn itself, and the reports that come back.

A call that makes a child first writes the child's row into the registry, with its own start; only then is the thread
created, under a token that follows from the call, by a transaction that checks that the row is still open. So a call
that runs again finds its child, and a parent that was ended in that very moment gets none. A child that is spoken to
opens its row with the same transaction that gives it the message.
"""

import base64
import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from chalicelib.domain import children as family
from chalicelib.domain import queueing, values, wire
from chalicelib.domain.children import DEPTH, LIVE, Heard
from chalicelib.domain.commands import Delivery
from chalicelib.domain.ids import TOKEN_CHARACTERS, ThreadRef, child_numbers
from chalicelib.domain.limits import ARGUMENTS_BYTES, CONTENT_BYTES, TITLE_CHARACTERS
from chalicelib.domain.model import RUNNING, About, Call, Child, ChildKind, Head, Outcome
from chalicelib.domain.queueing import Ask, then
from chalicelib.engine import fitting, sessions
from chalicelib.engine.agent import Agent, Tool
from chalicelib.engine.agent_tool import AgentTool, by_the_turn
from chalicelib.engine.attempt import Attempt
from chalicelib.engine.files import added
from chalicelib.engine.handoff import Handoff
from chalicelib.engine.log import commit_of
from chalicelib.engine.registry import registry
from chalicelib.ports import Committed, Moved, Remembered, Upward

CREATE, TELL = "subagent_create", "subagent_message"
NAME_CHARACTERS = 64
#: Tries to put a message into a child that others write to at the same time, and the longest pause between two (s).
TRIES, LONGEST_PAUSE_SECONDS = 20, 0.25
#: Keys of messages to children are kept as long as those of clients (services.appending).
KEPT_MICROS = 48 * 3600 * 1_000_000


def tools_of(agent: Agent) -> list[Tool]:
    """The runtime tools that an agent may use."""
    named = [*_subagent_tools(agent)] if agent.subagents else []
    if agent.child_sessions:
        named += [_runtime(name, *shape) for name, shape in sessions.SCHEMAS.items()]
    return named


def _subagent_tools(agent: Agent) -> list[Tool]:
    text = {"type": "string"}
    create = {
        "agent": {"type": "string", "enum": list(agent.subagents)},
        "name": {"type": "string", "minLength": 1, "maxLength": NAME_CHARACTERS},
        "title": {"type": "string", "maxLength": TITLE_CHARACTERS},
        "arguments": {"type": "object"},
        "message": text,
    }
    return [
        _runtime(CREATE, "Start a subagent that works beside you. You are told when it has ended.", create, ["name"]),
        _runtime(
            TELL,
            "Send a message to a subagent that you have started.",
            {"reference_id": text, "content": {"type": "string", "minLength": 1}},
            ["reference_id", "content"],
        ),
    ]


def _runtime(name: str, description: str, properties: dict[str, Any], required: list[str]) -> Tool:
    parameters = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return Tool(
        name=name,
        description=description,
        parameters=parameters,
        run=by_the_turn,
        by_the_turn=True,
        on_retry="again",
    )


def is_available(tool: Tool, agents: Collection[str]) -> bool:
    """False for an optional tool whose agent does not exist here."""
    return not (isinstance(tool, AgentTool | Handoff) and tool.optional and tool.agent not in agents)


def plan(attempt: Attempt, call: Call, position: int, now: int, made: tuple[Child, ...]) -> Child | str | None:
    """The child that a call makes, why it may not make one, or None: it makes none. `made`: children that the same
    write makes before it.
    """
    if call.name == sessions.PLACE:
        return sessions.plan(attempt, call, position, now, made)
    tool = attempt.tools[call.name]
    if not isinstance(tool, AgentTool) and call.name != CREATE:
        return None
    reference = family.reference(call.run, call.step, position)
    made_by = configured(tool, call, reference, now) if isinstance(tool, AgentTool) else None
    child = made_by or _asked_for(attempt, call, reference, now)
    child = replace(child, token=token_of(attempt.ref, reference))
    return fault(attempt, child, tool, call, len(made)) or child


def configured(tool: AgentTool, call: Call, reference: str, now: int) -> Child:
    """The child that a call of this tool makes."""
    return Child(
        reference=reference,
        kind=ChildKind.THREAD,
        call_id=call.id,
        agent=tool.agent,
        name=tool.name,
        reporting=tool.reporting,
        blocking=tool.blocking,
        resumable=tool.resumable,
        created_at=now,
    )


def _asked_for(attempt: Attempt, call: Call, reference: str, now: int) -> Child:
    return Child(
        reference=reference,
        kind=ChildKind.THREAD,
        call_id=call.id,
        agent=call.arguments.get("agent") or attempt.agent.subagents[0],
        name=call.arguments["name"],
        title=call.arguments.get("title"),
        resumable=True,
        created_at=now,
    )


def fault(attempt: Attempt, child: Child, tool: Tool, call: Call, made: int) -> str | None:
    """Why this child may not be made now. `made`: children that the same write makes before it."""
    if child.agent not in attempt.agents:
        return f"There is no agent named {child.agent!r}."
    if attempt.journal.head.depth >= DEPTH:
        return f"This thread is {DEPTH} levels below its root: it may have no subagents of its own."
    if values.size(_arguments(call)) > ARGUMENTS_BYTES:
        return f"The arguments have more than {ARGUMENTS_BYTES} bytes."
    if faults := unfit(attempt.agents[child.agent], _arguments(call)):
        return faults
    rows = registry(attempt.store, attempt.ref) if attempt.journal.head.children else []
    live = [row for row in rows if row.status == RUNNING and row.kind is ChildKind.THREAD]
    if len(live) + made >= LIVE:
        return f"{LIVE} subagents are at work already; wait until one has ended."
    if isinstance(tool, AgentTool) and sum(row.name == tool.name for row in live) >= tool.max_instances:
        return f"{tool.max_instances} of {tool.name} are at work already; wait until one has ended."
    return None


def unfit(agent: Agent, arguments: Mapping[str, Any]) -> str | None:
    """Why this agent cannot play a thread with these arguments."""
    if not agent.required_of_arguments:
        return None
    faults = fitting.faults_of_arguments(agent.required_of_arguments, arguments)
    said = "; ".join(f"{fault.path}: {fault.message}" for fault in faults)
    return f"Agent {agent.name} requires other arguments: {said}" if faults else None


def token_of(ref: ThreadRef, reference: str) -> str:
    """The token of a child follows from its parent's, so that a second try makes the same thread."""
    digest = hashlib.sha256(f"{ref.org}/{ref.token}/{reference}".encode()).digest()
    return base64.b32encode(digest).decode().lower()[:TOKEN_CHARACTERS]


def perform(attempt: Attempt, call: Call, position: int) -> Call:
    """Play a call that the turn plays itself; answers it with its result, or with the child that it waits for."""
    if call.name in sessions.TOOLS:
        return sessions.perform(attempt, call)
    if call.name == TELL:
        return _ended(attempt, call, *_tell(attempt, call))
    reference = family.reference(call.run, call.step, position)
    child = attempt.store.open(attempt.ref, head=False, children=[reference]).children[reference]
    refused = create(attempt, child, attempt.tools[call.name], call)
    if refused is not None:
        return _ended(attempt, call, Outcome.ERROR, refused)
    if child.blocking:
        return replace(call, waits=child.reference)
    thread_id = ThreadRef(attempt.ref.org, child.token).id
    return _ended(attempt, call, Outcome.OK, {"reference_id": reference, "thread_id": thread_id, "status": RUNNING})


def made_by(attempt: Attempt, call: Call, position: int) -> dict[str, Any] | None:
    """The row of the child thread that a call has made, as clients see it; None if it made none."""
    makes = call.name == CREATE or isinstance(attempt.tools[call.name], AgentTool)
    if not makes or call.outcome is Outcome.ERROR or attempt.agent.hooks.after_subagent_created is None:
        return None
    reference = family.reference(call.run, call.step, position)
    rows = attempt.store.open(attempt.ref, head=False, children=[reference]).children
    return wire.child_body(attempt.ref, rows[reference]) if reference in rows else None


def _ended(attempt: Attempt, call: Call, outcome: Outcome, result: Any) -> Call:
    return replace(call, outcome=outcome, result=result, ended_at=attempt.clock.now())


def create(attempt: Attempt, child: Child, tool: Tool, call: Call) -> str | None:
    """Make the thread of a child with its first message; why not, if it may not be. Twice makes it once."""
    ref, now = ThreadRef(attempt.ref.org, child.token), attempt.clock.now()
    arguments = _arguments(call)
    about = About(
        title=child.title,
        tags=(),
        arguments=arguments,
        user=attempt.user,
        parent={"thread_id": attempt.ref.id, "reference_id": child.reference, "name": child.name},
    )
    head = Head(
        rev=0,
        agent=child.agent,
        created_at=now,
        active_at=now,
        since=now,
        parent=attempt.ref.token,
        reference=child.reference,
        depth=attempt.journal.head.depth + 1,
        hears=(tool.receives_messages or "") if isinstance(tool, AgentTool) else "",
    )
    created = queueing.create(head, about, now)
    files = attempt.bag.carry(attempt.ref, ref, values.dumps(call.arguments), now)
    created = then(created, lambda at: added(at, files))
    ask = Ask(content=_said(tool, call, arguments), metadata={}, delivery=Delivery.JOIN, nonce=child.reference)
    accepted = queueing.accept(ref, created.after, ask, now)
    draft = replace(accepted, facts=(*created.facts, *accepted.facts), files=created.files)
    upward = Upward(parent=attempt.ref.token, reference=child.reference, act="check")
    result = attempt.log.commit(commit_of(ref, None, draft, now=now, write=child.reference, about=about, upward=upward))
    if isinstance(result, Moved) and result.head is None:
        return "The subagent was not started, because this thread is ending."
    attempt.wake(ref, None, result.head or head)
    return None


def _arguments(call: Call) -> Mapping[str, Any]:
    arguments: Mapping[str, Any] = call.arguments.get("arguments") or {} if call.name == CREATE else call.arguments
    return arguments


def _said(tool: Tool, call: Call, arguments: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    """The child's first message: the mapped argument, else the arguments as canonical JSON."""
    if isinstance(tool, AgentTool):
        said = call.arguments.get(tool.message) if tool.message else None
    else:
        said = call.arguments.get("message")
    text = said if isinstance(said, str) and said else values.canonical(arguments)
    return ({"type": "text", "text": values.cut_text(text, CONTENT_BYTES // 4)},)


def _tell(attempt: Attempt, call: Call) -> tuple[Outcome, Any]:
    """Put a message into a child's thread, once however often the call runs."""
    reference, content = call.arguments["reference_id"], call.arguments["content"]
    named = [reference] if child_numbers(reference) else []
    child = attempt.store.open(attempt.ref, head=False, children=named).children.get(reference) if named else None
    if child is None or child.kind is not ChildKind.THREAD:
        return Outcome.ERROR, f"This thread has no subagent {reference!r}."
    if not child.resumable:
        return Outcome.ERROR, f"Subagent {reference} takes no further messages."
    ref, key = ThreadRef(attempt.ref.org, child.token), f"subagent:{attempt.ref.token}.{call.run}.{call.id}"
    ask = Ask(content=({"type": "text", "text": content},), metadata={}, delivery=Delivery.JOIN, nonce=call.id)
    for number in range(TRIES):
        now = attempt.clock.now()
        opened = attempt.store.open(ref, key=key, now=now)
        head = opened.head
        if opened.remembered is not None:
            return Outcome.OK, {"queued": True}
        if head is None or head.deleted_at or head.terminated_at or queueing.is_full(head):
            return Outcome.ERROR, f"Subagent {reference} takes no message now."
        draft = queueing.accept(ref, head, ask, now)
        keep = Remembered(
            key=key,
            fingerprint="",
            token=ref.token,
            command=head.commands + 1,
            nonce=call.id,
            expires_at=now + KEPT_MICROS,
        )
        upward = Upward(parent=attempt.ref.token, reference=reference, act="reopen")
        result = attempt.log.commit(commit_of(ref, head, draft, now=now, write=key, remember=keep, upward=upward))
        if isinstance(result, Committed):
            attempt.wake(ref, head, result.head)
            return Outcome.OK, {"queued": True}
        if result.closed:
            return Outcome.ERROR, f"Subagent {reference} has been closed."
        attempt.rest(min(LONGEST_PAUSE_SECONDS, 0.01 * 2**number))
    return Outcome.ERROR, f"Subagent {reference} was too busy to take the message."


def settled_calls(calls: Collection[Call], heard: Sequence[Heard], now: int) -> list[Call]:
    """Calls that waited for a child which has reported."""
    outcomes = {report.reference: report for report, _ in heard if report.outcome}
    return [
        family.settled(call, outcomes[call.waits], now)
        for call in calls
        if call.outcome is None and call.waits in outcomes
    ]

"""The JSON bodies of spec sections 3 and 5, made from the records: the only room that knows how a record looks outside.

It must not know where records come from or who asks. It guarantees a fixed order of keys and that the same record gives
the same body, so that `values.dumps` of it is the same bytes on HTTP, on a websocket and in an event. An optional field
stands only when it is set; what is required stands always, null included.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from chalicelib.domain.events import SCHEMA_VERSION, Event
from chalicelib.domain.ids import ThreadRef, queued_call
from chalicelib.domain.model import (
    About,
    Child,
    ChildKind,
    Command,
    CommandState,
    Head,
    Inquiry,
    InquiryKind,
    Message,
    Role,
    RunStatus,
    Tokens,
    Verdict,
)

Body = dict[str, Any]

STEP_LABEL_CHARACTERS = 200  # spec section 5, a step row
_MICRO = 1_000_000


def event_body(ref: ThreadRef, event: Event) -> Body:
    """The envelope of an event."""
    return {
        "schema_version": SCHEMA_VERSION,
        "delivery_seq": event.seq,
        "event_id": ref.event(event.seq),
        "type": event.type,
        "thread_id": ref.id,
        **_set("run_id", event.run and ref.run(event.run)),
        **_set("attempt", event.attempt),
        "ts": event.at,
        "data": dict(event.data),
    }


def message_body(ref: ThreadRef, message: Message) -> Body:
    """A message in its place."""
    return {
        "id": message.id,
        "thread_id": ref.id,
        **_set("run_id", message.run and ref.run(message.run)),
        "role": message.role.value,
        **_set("side", message.side),
        "content": _parts(message.content),
        "silent": message.silent,
        "metadata": dict(message.metadata),
        "created_at": message.created_at,
        **_set("updated_at", message.updated_at),
        **_set("superseded", message.superseded),
        **_set("incomplete", message.incomplete),
        **{f"subagent_{name}": value for name, value in (message.child or {}).items()},
    }


def pending_body(ref: ThreadRef, command: Command) -> Body:
    """The message of a command before it has a place; `metadata.queued` is true while no run has taken it in."""
    body = message_body(ref, user_message(ref, command, place=0, run=command.run))
    if command.is_pending_join:
        body["metadata"]["queued"] = True
    return body


def user_message(ref: ThreadRef, command: Command, *, place: int, run: int, side: str = "") -> Message:
    """The message of a command as it takes its place in a run (0: in none): what a user says, or the call of a queued
    tool, as if the side had asked for it.
    """
    content = command.content or ()
    if command.is_call:
        content = ({**content[0], "call_id": queued_call(command.number)},)
    return Message(
        place=place,
        id=ref.user_message(command.number),
        run=run,
        role=Role.ASSISTANT if command.is_call else Role.USER,
        side=side if command.is_call else "",
        content=content,
        metadata=command.metadata or {},
        created_at=command.created_at,
    )


def command_body(ref: ThreadRef, command: Command, head: Head) -> Body:
    """A command with its state of now, as far as the head knows better than the command's row."""
    return {
        "id": ref.command(command.number),
        "kind": command.kind,
        "state": command_state(command, head).value,
        "thread_id": ref.id,
        **_set("run_id", command.run and ref.run(command.run)),
        **_set("idempotency_key", command.key),
        "created_at": command.created_at,
    }


def command_state(command: Command, head: Head) -> CommandState:
    """State of a command: its row is written when it ends, the head tells what happens until then."""
    if command.state is CommandState.WITHDRAWN:
        return command.state
    if command.kind == "run.cancel":
        open_still = command.state is not CommandState.DONE and head.run == command.run
        return CommandState.STARTED if open_still else CommandState.DONE
    if not command.is_run:
        return command.state
    if command.status.ended:
        return CommandState.DONE
    return CommandState.STARTED if _in_flight(command, head) and head.run_started_at else command.state


def run_body(ref: ThreadRef, command: Command, head: Head) -> Body:
    """The run of a command. While it is in flight the head holds its numbers."""
    live = _in_flight(command, head)
    usage = head.run_usage if live else command.usage
    return {
        "id": ref.run(command.number),
        "thread_id": ref.id,
        **_set("parent_run_id", command.parent and ref.run(command.parent)),
        "command_id": ref.command(command.number),
        "status": _run_status(command, head).value,
        **_set("reason", head.waiting if live else command.reason),
        "agent": command.agent,
        **_set("model", command.model),
        "version": command.version,
        "attempts": head.run_attempt if live else command.attempts,
        "steps": head.run_steps if live else command.steps,
        "usage": usage_body(usage),
        "cost_usd": cost_usd(usage),
        "created_at": command.created_at,
        **_set("started_at", head.run_started_at if live else command.started_at),
        **_set("ended_at", command.ended_at),
        **_set("error", command.error and dict(command.error)),
    }


def thread_body(ref: ThreadRef, head: Head, about: About, children: Sequence[Mapping[str, Any]] = ()) -> Body:
    """A thread. `children`: rows of its registry, newest first, at most 50."""
    return {
        "id": ref.id,
        "agent": head.agent,
        **_set("played_by", head.played_by),
        "title": about.title,
        "tags": list(about.tags),
        "arguments": dict(about.arguments),
        **_set("user", about.user),
        **_set("parent", about.parent and dict(about.parent)),
        "status": status_body(head),
        "queue": {"pending": head.pending, "runs": head.queued + int(bool(head.run) and not head.run_started_at)},
        "children": [dict(child) for child in children],
        "created_at": head.created_at,
        "last_activity_at": head.active_at,
        **_set("terminated_at", head.terminated_at),
    }


def child_body(ref: ThreadRef, child: Child) -> Body:
    """A row of a thread's registry."""
    is_thread = child.kind is ChildKind.THREAD
    return {
        "reference_id": child.reference,
        "kind": child.kind.value,
        **({"thread_id": ThreadRef(ref.org, child.token).id} if is_thread else {"run_id": ref.run(child.run)}),
        **_set("agent", child.agent),
        "name": child.name,
        **_set("title", child.title),
        "status": child.status,
        **_set("label", child.label),
        "relationship": child.reporting.value,
        "blocking": child.blocking,
        "created_at": child.created_at,
    }


def inquiry_body(ref: ThreadRef, inquiry: Inquiry) -> Body:
    """A question or an approval. `verdict` stands once it is resolved."""
    question = {"question": inquiry.question, **_set("options", list(inquiry.options))}
    approval = {"arguments": inquiry.arguments, "arguments_sha256": inquiry.arguments_sha256}
    return {
        "id": inquiry.id,
        "kind": inquiry.kind.value,
        "thread_id": ref.id,
        "run_id": ref.run(inquiry.run),
        "call_id": inquiry.call_id,
        "tool": inquiry.tool,
        **(question if inquiry.kind is InquiryKind.QUESTION else approval),
        "created_at": inquiry.created_at,
        **_set("expires_at", inquiry.expires_at),
        **_set("verdict", inquiry.verdict and inquiry.verdict.value),
        **({"answer": inquiry.answer} if inquiry.verdict is Verdict.ANSWERED else {}),
        **_set("by", inquiry.by),
        **_set("reason", inquiry.reason),
        **_set("decided_at", inquiry.decided_at),
    }


def status_body(head: Head) -> Body:
    """Status of a thread: `state`, `since` in microseconds, `reason`."""
    return {"state": head.state.value, "since": head.since, "reason": head.reason}


def usage_body(tokens: Tokens) -> Body:
    """Token counts; the money stands beside them, never inside."""
    return {"input_tokens": tokens.input, "output_tokens": tokens.output, "cache_read_tokens": tokens.cache_read}


def cost_usd(tokens: Tokens) -> float | None:
    """USD of tokens, None when a price was unknown."""
    return None if tokens.cost_micro_usd is None else tokens.cost_micro_usd / _MICRO


def done_step(command: Command) -> Body | None:
    """The `done` row of a run's step lane, derived from the run's row; None unless the run completed."""
    if command.status is not RunStatus.COMPLETED:
        return None
    label = (command.label or "")[:STEP_LABEL_CHARACTERS]
    return {"n": 1, "kind": "done", "label": label, "at": command.ended_at}


def _in_flight(command: Command, head: Head) -> bool:
    return head.run == command.number and not command.status.ended


def _run_status(command: Command, head: Head) -> RunStatus:
    if not _in_flight(command, head):
        return command.status
    if head.waiting:
        return RunStatus.WAITING
    return RunStatus.RUNNING if head.run_started_at else RunStatus.QUEUED


def _parts(content: Sequence[Mapping[str, Any]]) -> list[Body]:
    return [dict(part) for part in content]


def _set(name: str, value: Any) -> Body:
    """The field if it is set: 0, False and None are not, an empty text is nothing that a record holds."""
    return {name: value} if value else {}

"""The sides of an agent on a thread: who has the turn, what that side is shown, and what moves on when its turn ends.

What follows a step is decided in `engine.stops`; this room reads and drafts what that needs. Whose turn it is stands on
the head, in the same write as the answer or after the results that ended the turn, so a crash resumes the same side.
"""

from collections.abc import Iterable
from dataclasses import replace

from chalicelib.domain import values, wire
from chalicelib.domain.events import Fact
from chalicelib.domain.ids import ThreadRef
from chalicelib.domain.model import Command, Head, Message, Outcome, Role
from chalicelib.domain.queueing import Draft
from chalicelib.engine import children, stops
from chalicelib.engine.agent import Agent
from chalicelib.engine.attempt import Attempt
from chalicelib.engine.stops import Cast, Next, Result


def speaker(cast: Cast, head: Head, command: Command) -> str:
    """The side that has the turn, before the first write of the run too."""
    begins = not head.run_started_at
    says = begins and not command.is_call and (command.content is not None or command.place > 0)
    return cast.speaker(head.side, begins=begins, hears=head.hears if says else "")


def speak(attempt: Attempt, agent: Agent, side: str) -> None:
    """From here on the attempt plays with this side's prompt, model and tools."""
    if not agent.sides or agent.cast.sides[side].human:
        return
    voice = attempt.agent = agent.voice(side)
    attempt.model = attempt.asked_model or voice.model or attempt.default_model
    tools = [*voice.tools_for(attempt.arguments), *children.tools_of(voice)]
    attempt.tools = {tool.name: tool for tool in tools if children.is_available(tool, attempt.agents)}


def seen_by(side: str, messages: Iterable[Message], *, hears: str = "") -> list[Message]:
    """The conversation as a side sees it: itself as assistant, the other as user, without the other's calls. `hears`:
    the side that users' messages are for, if they are for one.
    """
    return [seen for message in messages if (seen := _seen(side, message, hears)) is not None]


def _seen(side: str, message: Message, hears: str) -> Message | None:
    of = message.side or (hears if message.role is Role.USER else "")
    if not of or of == side:
        return message
    if message.role is not Role.ASSISTANT:
        return None
    content = tuple(part for part in message.content if part["type"] != "tool_call")
    return replace(message, role=Role.USER, content=content) if content else None


def labelled(cast: Cast, side: str, results: Iterable[Result]) -> str | None:
    """What the tool that says how the session stands has answered, if it was called."""
    name = cast.sides[side].session_status
    said = [result.content for result in results if name and result.name == name and result.outcome == Outcome.OK]
    return None if not said else said[-1] if isinstance(said[-1], str) else values.dumps(said[-1])


def following(ref: ThreadRef, cast: Cast, head: Head, messages: Iterable[Message]) -> Next | None:
    """What follows the newest step's results, if that changes anything; None: the side takes its next step."""
    then = stops.after_calls(cast, _side(cast, head), newest_results(ref, cast, head, messages), turns=head.run_turns)
    return then if then.reason or then.passes else None


def newest_results(ref: ThreadRef, cast: Cast, head: Head, messages: Iterable[Message]) -> list[Result]:
    """The results of the newest step of the side that has the turn; none if it made no calls, has not
    begun, or handed the thread over with them.
    """
    if not (head.side_steps if cast.two_sided else head.run_steps):
        return []
    rows = {message.id: message for message in messages}
    told = rows.get(ref.results(head.run, head.run_steps))
    if told is None or told.place <= head.played_from:
        return []
    asking = {ref.asking(part["call_id"], head.run, head.run_steps) for part in told.content}
    asked = [part for name in asking if name in rows for part in rows[name].content if part["type"] == "tool_call"]
    names = {part["call_id"]: part["name"] for part in asked}
    return [
        Result(name=names.get(part["call_id"], ""), outcome=part["outcome"], content=part["content"])
        for part in told.content
    ]


def _side(cast: Cast, head: Head) -> str:
    return cast.speaker(head.side)


def stepped(cast: Cast, head: Head) -> Head:
    """The head after one more step of the side in its turn."""
    return replace(head, side_steps=head.side_steps + 1) if cast.two_sided else head


def moved(ref: ThreadRef, cast: Cast, head: Head, then: Next, now: int) -> Draft:
    """What the side said by its tool takes its place, and the turn passes."""
    draft = _said(ref, head, then.said, now) if then.said else Draft(after=head)
    if not (cast.two_sided and then.passes):
        return draft
    after = replace(draft.after, side=then.side, run_turns=head.run_turns + 1, side_steps=0)
    return replace(draft, after=after)


def _said(ref: ThreadRef, head: Head, text: str, now: int) -> Draft:
    message = Message(
        place=head.messages + 1,
        id=ref.said(head.run, head.run_steps),
        run=head.run,
        role=Role.ASSISTANT,
        content=({"type": "text", "text": text},),
        metadata={},
        created_at=now,
        side=head.side,
    )
    data = {"message": wire.message_body(ref, message)}
    told = Fact(type="message.completed", data=data, at=now, run=head.run, attempt=head.run_attempt)
    return Draft(after=replace(head, messages=message.place), facts=(told,), messages=(message,))

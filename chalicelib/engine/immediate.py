"""Subagents that a thread starts by itself, before its first model step (decision 0024).

It must not decide what a child is; `engine.children` does. It guarantees that each immediate tool makes one child for a
thread, whatever dies and whichever run comes to it: the child's row is written before its thread, under a name that
follows from the tool's place among those of the agent.
"""

import functools
from collections.abc import Iterator
from dataclasses import replace

from chalicelib.domain import children as family
from chalicelib.domain import entries, wire
from chalicelib.domain.entries import LogRow
from chalicelib.domain.model import RUNNING, Call, Child, Head, Outcome
from chalicelib.domain.queueing import Draft
from chalicelib.engine import children, fitting
from chalicelib.engine.agent import Agent
from chalicelib.engine.agent_tool import AgentTool
from chalicelib.engine.attempt import Attempt


def start(attempt: Attempt, agent: Agent) -> None:
    """Make the children that are still to be made, if no model has been asked for this thread yet. One that cannot be
    made is a row of the log, and the run goes on.
    """
    if attempt.journal.head.model_calls:
        return
    for position, (side, tool) in enumerate(_tools(attempt, agent), start=1):
        _start(attempt, side, tool, position)


def _tools(attempt: Attempt, agent: Agent) -> Iterator[tuple[str, AgentTool]]:
    """The immediate tools, with the side that has each."""
    for side in agent.cast.sides if agent.cast.two_sided else [""]:
        for tool in agent.voice(side).tools_for(attempt.arguments) if agent.sides else attempt.tools.values():
            if isinstance(tool, AgentTool) and tool.immediate and children.is_available(tool, attempt.agents):
                yield side, tool


def _start(attempt: Attempt, side: str, tool: AgentTool, position: int) -> None:
    now, named = attempt.clock.now(), tool.parameters.get("properties", {})
    given = {name: value for name, value in attempt.arguments.items() if name in named}
    call = Call(id="", run=attempt.journal.run, step=0, name=tool.name, arguments=given, started_at=now)
    reference = family.reference(1, 0, position)
    known = attempt.journal.head.children > 0
    child = attempt.store.open(attempt.ref, head=False, children=[reference]).children.get(reference) if known else None
    if child is None:
        token = children.token_of(attempt.ref, reference)
        child = replace(children.configured(tool, call, reference, now), token=token, side=side)
        refused = fitting.misfit(tool.parameters, given) or children.fault(attempt, child, tool, call, 0)
        if refused is not None:
            return _tell(attempt, call, position, refused, now)
        attempt.journal.write(functools.partial(_registered, attempt, child, now), progress=True)
    if child.status != RUNNING:
        return None
    refused = children.create(attempt, child, tool, call)
    if refused is not None:
        return _tell(attempt, call, position, refused, now)
    if attempt.agent.hooks.after_subagent_created is not None:
        attempt.hooking.call("after_subagent_created", wire.child_body(attempt.ref, child))
    return None


def _registered(attempt: Attempt, child: Child, now: int, head: Head) -> Draft:
    told = family.started(attempt.ref, child, head, now)
    return Draft(after=replace(head, children=head.children + 1), facts=(told,), children=(child,))


def _tell(attempt: Attempt, call: Call, position: int, refused: str, now: int) -> None:
    """Why a child was not started, for who reads the log."""
    body = entries.tool_body(
        name=call.name, call_id="", outcome=Outcome.ERROR, duration_ms=0, arguments=call.arguments, result=refused
    )
    key = entries.key(now, f"t{call.run}.0.{position}")
    row = LogRow(key=key, kind="tool", at=now, run=call.run, message_id=attempt.newest, body=body)
    attempt.journal.write(lambda head: Draft(after=head, logs=(row,)), progress=True)

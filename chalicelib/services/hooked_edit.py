"""Edits of messages by clients, past the hooks of the thread's agent that want to see them.

The hooks run here, with a state outside of any run and a deadline. An agent without them costs one read more, and none
where no agent has any. What a hook blocks is refused; nothing is stored then.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from chalicelib.domain import entries, wire
from chalicelib.domain.commands import PatchMessage, Principal
from chalicelib.domain.entries import LogRow
from chalicelib.domain.errors import Forbidden
from chalicelib.domain.ids import ThreadRef
from chalicelib.engine import messages
from chalicelib.engine.agent import Agent
from chalicelib.engine.hooks import Blocked, Hooks
from chalicelib.engine.state import ThreadState
from chalicelib.engine.updating import Updating, hook_failure
from chalicelib.engine.workers import Flag
from chalicelib.services import guests
from chalicelib.services.appending import alive, known
from chalicelib.services.edit import Edit
from chalicelib.services.outside import Outside


@dataclass(frozen=True, kw_only=True)
class HookedEdit(Edit):
    """Edits, with hooks."""

    outside: Outside
    agents: Mapping[str, Agent]

    def patch_message(self, p: Principal, thread_id: str, message_id: str, ask: PatchMessage) -> dict[str, Any]:
        """See `Edit`. Raises Forbidden for what a hook blocks."""
        if not any(_sees_updates(agent.hooks) for agent in self.agents.values()):
            return super().patch_message(p, thread_id, message_id, ask)
        ref = known(p.org, thread_id)
        opened = self.store.open(ref, about=True)
        head, agent = alive(opened.head), None if opened.head is None else self.agents.get(opened.head.agent)
        if agent is None or opened.about is None or not _sees_updates(agent.hooks):
            return super().patch_message(p, thread_id, message_id, ask)
        flag, token = Flag(), self.appender.ids.token()
        state = self.outside.state(ref, head, opened.about, agent, token=token, again=False, cancel=flag)
        message = wire.message_body(ref, messages.find(self.store, ref, head, message_id))
        wanted = {"content": None if ask.content is None else list(ask.content), "metadata": ask.metadata}
        changed = self._played(ref, agent, "before", lambda around: around.before(state, message, wanted)) or wanted
        content, metadata = messages.change_of(changed, self.outside.environment.safe)
        stored = super().patch_message(p, thread_id, message_id, PatchMessage(content=content, metadata=metadata))
        self._played(ref, agent, "after", lambda around: _after(around, state, stored))
        return stored

    def _played(self, ref: ThreadRef, agent: Agent, when: str, work: Callable[[Updating], Any]) -> Any:
        """What a hook answers; None if it takes too long. Raises Forbidden."""

        def failed(name: str, fault: str) -> None:
            now = self.appender.clock.now()
            key = entries.key(now, f"h{self.appender.ids.token()}")
            row = LogRow(key=key, kind="handler", at=now, body=hook_failure(name, fault))
            self.store.log(ref, row, remember=None, now=now)

        around = Updating(hooks=agent.hooks, safe=self.outside.environment.safe, failed=failed)
        try:
            return guests.run(lambda: work(around), agent.hooks.timeout_seconds, Flag())
        except guests.Late as late:
            failed(f"{when}_update_message", str(late))
            return None
        except Blocked as blocked:
            raise Forbidden(self.outside.environment.hide_text(str(blocked)) or "A hook has blocked this.") from None


def _after(around: Updating, state: ThreadState, message: dict[str, Any]) -> None:
    """What is stored stays: there is nothing left to block."""
    try:
        around.after(state, message)
    except Blocked:
        return


def _sees_updates(hooks: Hooks) -> bool:
    return hooks.before_update_message is not None or hooks.after_update_message is not None

"""Questions and approvals of a thread: listed, answered, decided, and given up when their time is over.

One answer wins, whoever gives it: a decision is a write on the head of the thread, together with the row of what was
asked, so of two decisions one finds the row decided. The write that takes away the last thing that a waiting run waits
for also resumes the run and names its wake-up.
"""

from dataclasses import dataclass
from typing import Any

from chalicelib.domain import people, queueing, wire
from chalicelib.domain.commands import Answer, AnswerQuestion, Decide, Idempotency, Page, Principal
from chalicelib.domain.errors import AlreadyDecided, KeyReused, NotFound
from chalicelib.domain.ids import ThreadRef, inquiry_numbers
from chalicelib.domain.model import Call, Head, Inquiry, Verdict
from chalicelib.domain.people import Decision
from chalicelib.domain.queueing import Draft, then
from chalicelib.engine import ending
from chalicelib.engine.log import commit_of
from chalicelib.ports import Committed, Store
from chalicelib.services.appending import Appender, alive, kept_key, known


@dataclass(frozen=True, kw_only=True)
class People:
    """What threads ask of people."""

    store: Store
    appender: Appender

    def list_inquiries(self, p: Principal, thread_id: str, *, open_only: bool, limit: int, position: Any) -> Page:
        """Questions and approvals, in the order in which runs and their calls asked."""
        ref = known(p.org, thread_id)
        alive(self.store.open(ref).head)
        after: str = position or ""
        items: list[dict[str, Any]] = []
        while rows := self.store.inquiries(ref, after=after, limit=limit):
            for row in rows:
                if len(items) == limit:
                    return Page(items=items, next=after)
                after = row.id
                if row.verdict is None or not open_only:
                    items.append(wire.inquiry_body(ref, row))
        return Page(items=items)

    def answer_question(
        self, p: Principal, thread_id: str, question_id: str, ask: AnswerQuestion, idem: Idempotency | None
    ) -> Answer:
        """200 with the question as it is resolved. Raises AlreadyDecided if another answer, or anything else, won."""
        decision = Decision(verdict=Verdict.ANSWERED, answer=ask.answer, by=p.user or p.key_id)
        return self._decide(known(p.org, thread_id), "qst", question_id, decision, idem)

    def decide(self, p: Principal, thread_id: str, approval_id: str, ask: Decide, idem: Idempotency | None) -> Answer:
        """200 with the approval as it is resolved. Raises AlreadyDecided."""
        verdict = Verdict.APPROVED if ask.approve else Verdict.REJECTED
        decision = Decision(verdict=verdict, by=p.user or p.key_id, reason=ask.reason)
        return self._decide(known(p.org, thread_id), "apr", approval_id, decision, idem)

    def expire(self, ref: ThreadRef, head: Head) -> None:
        """Give up what has waited too long, all that is due in one write. A second call finds nothing due."""
        now = self.appender.clock.now()
        _, calls = ending.open_calls(self.store, ref, head)
        asked = self._asked(ref, calls)
        over = [(asked[call.waits], call) for call in calls if _is_over(asked.get(call.waits), now)]
        draft = people.resolve_all(head, over, Decision(verdict=Verdict.EXPIRED), now)
        left = [row for row in asked.values() if row.id not in {inquiry.id for inquiry, _ in over}]
        if left or not over:
            due_at = min((row.expires_at for row in left if row.expires_at), default=0)
            draft = then(draft, lambda at: Draft(after=queueing.due(at, due_at)))
        else:
            draft = then(draft, lambda at: queueing.resume(at, tuple(inquiry.id for inquiry, _ in over), now))
        result = self.appender.log.commit(commit_of(ref, head, draft, now=now, write=self.appender.ids.token()))
        if isinstance(result, Committed):
            self.appender.wake(ref, head, result.head)

    def _decide(
        self, ref: ThreadRef, kind: str, inquiry_id: str, decision: Decision, idem: Idempotency | None
    ) -> Answer:
        nonce = self.appender.ids.token()
        for _ in self.appender.tries():
            now = self.appender.clock.now()
            named = [inquiry_id] if inquiry_numbers(ref, kind, inquiry_id) else []
            opened = self.store.open(ref, inquiries=named, key=idem.key if idem else None, now=now)
            head = alive(opened.head)
            inquiry = opened.inquiries.get(inquiry_id)
            if inquiry is None:
                raise NotFound
            if idem is not None and opened.remembered is not None:
                if opened.remembered.fingerprint != idem.fingerprint:
                    raise KeyReused
                return Answer(status=200, body=wire.inquiry_body(ref, inquiry), replayed=True)
            if inquiry.verdict is not None:
                raise AlreadyDecided
            draft = self._resolved(ref, head, inquiry, decision, now)
            keep = kept_key(ref, idem, nonce=nonce, now=now) if idem else None
            result = self.appender.log.commit(commit_of(ref, head, draft, now=now, write=nonce, remember=keep))
            if isinstance(result, Committed):
                self.appender.wake(ref, head, result.head)
                return Answer(status=200, body=wire.inquiry_body(ref, draft.inquiries[0]))
        raise AssertionError("tries end with RetryLater")

    def _resolved(self, ref: ThreadRef, head: Head, inquiry: Inquiry, decision: Decision, now: int) -> Draft:
        """The decision, and the waiting run resumed if nothing else of it waits."""
        _, calls = ending.open_calls(self.store, ref, head)
        (call,) = [call for call in calls if call.id == inquiry.call_id]
        draft = people.resolve(head, inquiry, call, decision, now)
        others = any(people.is_inquiry(c.waits) for c in calls if c.id != call.id and c.outcome is None)
        if not head.waiting or others:
            return draft
        return then(draft, lambda at: queueing.resume(at, (inquiry.id,), now))

    def _asked(self, ref: ThreadRef, calls: list[Call]) -> dict[str, Inquiry]:
        waiting = [call.waits for call in calls if call.outcome is None and people.is_inquiry(call.waits)]
        return dict(self.store.open(ref, head=False, inquiries=waiting).inquiries)


def _is_over(inquiry: Inquiry | None, now: int) -> bool:
    return inquiry is not None and 0 < inquiry.expires_at <= now

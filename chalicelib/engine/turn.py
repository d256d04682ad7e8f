"""A turn: model steps and the tool calls that they ask for, until the run ends, hands over, or is taken away.

The order of one model step (spec section 7): inject pending messages; assemble the context; call the model; store the
answer; run tools, storing each result as it lands; evaluate the stops. Everything that is known is in rows, so a turn
can be taken up at any boundary by another attempt; what an attempt knows beyond that is only what it has not told yet.
"""

from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum

from chalicelib.domain import children as family
from chalicelib.domain import costs, endings, queueing
from chalicelib.domain.children import Heard
from chalicelib.domain.endings import Ending
from chalicelib.domain.entries import LogRow
from chalicelib.domain.errors import ModelError
from chalicelib.domain.events import Fact
from chalicelib.domain.model import Call, Command, Head, Message, RunStatus, Tokens
from chalicelib.domain.queueing import Draft, then
from chalicelib.engine import context, ending, immediate, planning, playing, queued, sides, stops
from chalicelib.engine.answering import Answering, Failed
from chalicelib.engine.attempt import Attempt
from chalicelib.engine.calling import Calling, Left
from chalicelib.engine.files import added
from chalicelib.engine.hooking import RunBlocked
from chalicelib.engine.journal import CallIdsTaken, CancelSeen, Decide
from chalicelib.engine.registry import reports
from chalicelib.engine.speech import Speech
from chalicelib.engine.stops import Next
from chalicelib.engine.waiting import pending_joins

#: Pending joins that one write takes in: three actions each in a transaction of at most 90 (design section 4.4).
JOINS_A_WRITE = 20
#: Leases in a row without a new stored fact after which a run is given up (spec section 7).
STALLS = 5
LABEL_CHARACTERS = 200


class Result(Enum):
    """What became of an attempt."""

    ENDED = "ended"
    HANDED_OVER = "handed over"
    WAITS = "waits"


@dataclass(kw_only=True)
class Turn:
    """Plays the run in flight. `recovered`: the attempt before died with its lease."""

    attempt: Attempt
    recovered: bool
    answering: Answering | None = None
    bound_taken: bool = False

    def __post_init__(self) -> None:
        self.agent = self.attempt.agent
        """As it is defined; `attempt.agent` is the side that has the turn."""
        self.player = self.attempt.journal.head.player
        self.began_at = self.attempt.clock.now()
        self.attempt.journal.open_with(self._open_with_call if self.attempt.command.is_call else self._open)

    def play(self) -> Result:
        """Work until the run ends or the invocation's time does. Raises LeaseLost, RetryLater."""
        try:
            return self._play()
        except CancelSeen:
            return self._cancelled()
        except RunBlocked as blocked:
            return self.fail(blocked.reason, reason="hook_blocked")
        finally:
            self.attempt.workers.dismiss()

    def fail(self, detail: str, *, reason: str = "step_error") -> Result:
        """End the run because the engine itself met something that it cannot handle, or a hook does not want it."""
        try:
            return self._end(_failure(reason, detail, retryable=False))
        except CancelSeen:
            return self._cancelled()

    def _cancelled(self) -> Result:
        reason = endings.cancel_reason(self.attempt.journal.head)
        return self._end(Ending(status=RunStatus.CANCELLED, reason=reason))

    def _play(self) -> Result:
        journal = self.attempt.journal
        if journal.head.cancel or journal.head.terminated_at:
            raise CancelSeen
        if journal.head.stalls > STALLS:
            return self._end(
                _failure("execution_lost", f"{STALLS} attempts ended without a stored fact", retryable=True)
            )
        self._speak()
        if self.recovered and journal.head.run_started_at:
            journal.write(lambda head: Draft(after=head))
        self.attempt.hooking.begin()
        immediate.start(self.attempt, self.agent)
        if self.attempt.command.is_call and journal.unopened:
            journal.write(lambda head: Draft(after=head), progress=True)
        while True:
            if journal.head.open_calls and (left := self._take_up_calls()) is not Left.FINISHED:
                return self._leave(left)
            if (fault := self._change_player()) is not None:
                return self.fail(fault)
            if (then_comes := self._after_calls()) is not None and self._follow(then_comes):
                return Result.ENDED
            if (stop := self._stopped()) is not None:
                return self._end(_ending(stop))
            self._inject()
            if journal.head.open_calls:
                continue
            if not self.attempt.covers(self.attempt.agent.model_seconds):
                return self._hand_over()
            answer = self._ask()
            if isinstance(answer, Failed):
                return self._end(_model_failure(answer.error))
            calls = self._store(answer)
            if calls is None:
                return Result.ENDED
            if calls and (left := Calling(self.attempt, journal.head.run_steps, calls).finish()) is not Left.FINISHED:
                return self._leave(left)

    def _open(self, head: Head) -> Draft:
        """What the first write of this attempt says first: the run has started, or somebody takes it up again."""
        attempt, now = self.attempt, self.began_at
        if not head.run_started_at:
            attempt.run_model, cast = attempt.model, self.agent.cast
            if cast.two_sided:
                head = replace(head, side=sides.speaker(cast, head, attempt.command))
            begun = queueing.start(
                attempt.ref, head, attempt.command, now=now, model=attempt.model, version=attempt.version
            )
            begun = replace(begun, facts=(*begun.facts, *attempt.hooking.told_anew(head, begun.messages, now)))
            return begun
        if not self.recovered:
            return Draft(after=head)
        facts = [self._fact("run.reconciling", {"adopted": head.run_steps + head.run_calls}, head, now)]
        logs: tuple[LogRow, ...] = ()
        if head.open_message:
            newest = attempt.window[-1].id if attempt.window else None
            logs = (ending.lost_call(head, model=attempt.model, message_id=newest, at=now),)
            message_id = attempt.ref.answer(head.run, head.run_steps + 1)
            facts.append(self._fact("message.reset", {"message_id": message_id, "reason": "runner_lost"}, head, now))
        if head.open_message:
            head = costs.called(head, model=attempt.model, own=attempt.run_model, usage=Tokens())
        return Draft(after=replace(head, open_message=0), facts=tuple(facts), logs=logs)

    def _open_with_call(self, head: Head) -> Draft:
        """The opening of a run that a queued tool has started: its first step stands with it."""
        return queued.begun(self.attempt, self.agent.cast, self._open(head), self.began_at)

    def _leave(self, left: Left) -> Result:
        return Result.WAITS if left is Left.WAITING else self._hand_over()

    def _speak(self) -> str:
        """The side that has the turn plays from here on."""
        side = sides.speaker(self.agent.cast, self.attempt.journal.head, self.attempt.command)
        sides.speak(self.attempt, self.agent, side)
        return side

    def _stopped(self) -> Next | None:
        """Why the side that has the turn takes no further step."""
        cast, head, side = self.agent.cast, self.attempt.journal.head, self._speak()
        steps = head.side_steps if cast.two_sided else head.run_steps
        return stops.before_step(cast, side, steps=steps, limit=self.attempt.agent.max_steps)

    def _change_player(self) -> str | None:
        """If the last step has handed the thread over, who took it plays from here on; why it cannot."""
        player, fault = self.attempt.journal.head.player, None
        if player != self.player:
            self.player = player
            self.agent, fault = playing.take_over(self.attempt)
        return fault

    def _after_calls(self) -> Next | None:
        """What follows the newest results, where the agent has sides that stop on a tool."""
        if not self.agent.sides:
            return None
        attempt, head, cast, messages = self.attempt, self.attempt.journal.head, self.agent.cast, self._messages()
        newest = sides.newest_results(attempt.ref, cast, head, messages)
        if head.parent and (label := sides.labelled(cast, cast.speaker(head.side), newest)):
            with suppress(OSError):  # a label is worth no run; the next one takes its place
                attempt.kin(f"{head.run}.{head.run_steps}").label(label)
        return sides.following(attempt.ref, cast, head, messages)

    def _follow(self, then_comes: Next) -> bool:
        """The turn passes, or the run ends. True: it has ended."""
        ref, cast, now = self.attempt.ref, self.agent.cast, self.attempt.clock.now()
        if then_comes.reason:
            self._end(_ending(then_comes), lambda head: sides.moved(ref, cast, head, then_comes, now))
            return True
        self.attempt.journal.write(lambda head: sides.moved(ref, cast, head, then_comes, now), progress=True)
        return False

    def _take_up_calls(self) -> Left:
        """Go on with the calls of an answer that an earlier attempt stored."""
        step, calls = ending.open_calls(self.attempt.store, self.attempt.ref, self.attempt.journal.head)
        taken_up = Calling(self.attempt, step, calls)
        taken_up.adopt()
        return taken_up.finish()

    def _inject(self) -> None:
        """Take in the pending joins, oldest first, a bounded number a write, up to a queued tool, which is a step of
        its own.
        """
        journal = self.attempt.journal
        while joins := self._joins(journal.head):
            self.attempt.hooking.prepare(joins)
            journal.write(self._take_in, progress=True)
            if journal.head.open_calls:
                return
        self.bound_taken = True
        while heard := self._reports():
            self._hear(heard)

    def _reports(self) -> list[Heard]:
        """What children have reported: a thread that never made one does not look."""
        attempt = self.attempt
        return reports(attempt.store, attempt.ref) if attempt.journal.head.children else []

    def _hear(self, heard: list[Heard]) -> None:
        attempt, now = self.attempt, self.attempt.clock.now()
        nonce = f"{attempt.journal.run}.{attempt.journal.attempt}.{now}"
        told, brought = attempt.bag.bring_home(attempt.ref, heard, now)

        def decide(head: Head) -> Draft:
            return then(added(head, brought), lambda at: family.hear(attempt.ref, at, told, nonce=nonce, now=now))

        attempt.journal.write(decide, progress=True)

    def _take_in(self, head: Head) -> Draft:
        attempt, now = self.attempt, self.attempt.clock.now()
        waiting = attempt.hooking.prepared(self._joins(head))
        joins = waiting[: queueing.placeable(waiting, JOINS_A_WRITE)]
        if not joins:
            return Draft(after=head)
        free = sum(1 for join in joins if join.number >= head.free_from)
        taken = queueing.inject(attempt.ref, head, joins, free=free, now=now)
        return queued.begun(attempt, self.agent.cast, taken, now) if joins[0].is_call else taken

    def _joins(self, head: Head) -> tuple[Command, ...]:
        """The pending joins that this run takes in next, of those bound to it or free. Reads only if the head says that
        there are some.
        """
        ranges = [] if self.bound_taken else list(self.attempt.command.joins)
        ranges += queueing.free_joins(head)
        store, ref = self.attempt.store, self.attempt.ref
        rows = [row for low, high in ranges for row in pending_joins(store, ref, low, high)]
        return queued.taken_next(sorted(rows, key=lambda row: row.number))

    def _ask(self) -> Speech | Failed:
        attempt = self.attempt
        self.answering = Answering(attempt, attempt.hooking.context(self._seen()))
        return self.answering.ask()

    def _seen(self) -> list[Message]:
        """The messages as the side that has the turn sees them."""
        if not self.agent.cast.two_sided:
            return self._messages()
        head = self.attempt.journal.head
        side = sides.speaker(self.agent.cast, head, self.attempt.command)
        return sides.seen_by(side, self._messages(), hears=head.hears)

    def _messages(self) -> list[Message]:
        """The stored window, and the run's own message if the write that places it is still to come."""
        attempt, head = self.attempt, self.attempt.journal.head
        if attempt.journal.others_wrote:
            places = context.window_places(head)
            read = attempt.store.open(attempt.ref, head=False, messages=places).messages
            attempt.window = [read[place] for place in places if place in read]
            attempt.journal.take_placed()
            attempt.journal.others_wrote = False
        standing = {message.place: message for message in (*attempt.window, *attempt.journal.take_placed())}
        attempt.window = sorted(standing.values(), key=lambda message: message.place)
        if attempt.journal.unopened and not head.run_started_at:
            return [*attempt.window, *self._open(head).messages]
        return attempt.window

    def _store(self, speech: Speech) -> list[Call] | None:
        """Store the answer; None if that was the end of the run, else the calls to run (none: another step)."""
        assert self.answering is not None
        self.answering.edited = self.attempt.hooking.answer(speech)
        taken: frozenset[str] = frozenset()
        while True:
            try:
                return self._store_as(speech, taken)
            except CallIdsTaken as clash:
                taken |= clash.ids

    def _store_as(self, speech: Speech, taken: frozenset[str]) -> list[Call] | None:
        attempt, answering, now = self.attempt, self.answering, self.attempt.clock.now()
        assert answering is not None
        step = attempt.journal.head.run_steps + 1
        planned = planning.plan(attempt, speech, step=step, taken=taken, now=now)
        begun = planning.begin(attempt, [p.call for p in planned], attempt.journal.head, now)
        calls = {c.id: c for c in [*(p.call for p in planned), *begun.calls]}
        spoken_to = not planned and family.wakes(self._reports())
        cast, ended = self.agent.cast, False

        def decide(head: Head) -> Draft:
            nonlocal ended
            draft = answering.stored(head, now, {p.ref: p.part for p in planned})
            draft = replace(draft, after=sides.stepped(cast, draft.after))
            if planned:
                closed = tuple(ending.completed_call(head, p.call, now) for p in planned if p.call.outcome is not None)
                started = then(replace(draft, facts=draft.facts + closed), begun.along)
                draft = replace(started, new_calls=tuple(calls.values()), calls=())
            if planned:
                return draft
            after = stops.after_answer(cast, cast.speaker(head.side), turns=head.run_turns)
            draft = then(draft, lambda at: sides.moved(attempt.ref, cast, at, after, now))
            ended = bool(after.reason) and not (after.gives_way and (queueing.free_joins(head) or spoken_to))
            return then(draft, lambda at: self._ending(at, _ending(after, speech.text))) if ended else draft

        attempt.journal.write(decide, progress=True, ending=False)
        self.answering = None
        return None if ended else list(calls.values())

    def _end(self, how: Ending, first: Decide | None = None) -> Result:
        """Close what is open and end the run, in one write. Raises CancelSeen: no other end may follow a cancel."""
        attempt = self.attempt
        attempt.workers.dismiss()
        if attempt.journal.unopened:
            attempt.journal.open_with(self._open)  # what ends at once calls nothing

        def decide(head: Head) -> Draft:
            now = attempt.clock.now()
            if self.answering is not None:
                closed = self.answering.close(head, now)
            else:
                closed = Draft(after=head)
            if head.open_calls:
                closed = then(closed, lambda at: ending.close_calls(attempt.store, attempt.ref, at, now))
            if first is not None:
                closed = then(closed, first)
            return then(closed, lambda at: self._ending(at, how, closed.messages))

        attempt.journal.write(decide, ending=how.status is RunStatus.CANCELLED)
        return Result.ENDED

    def _ending(self, head: Head, how: Ending, placed: tuple[Message, ...] = ()) -> Draft:
        """The end of the run as the last part of a draft, after the opening has taken place in it or before it."""
        attempt, command = self.attempt, self.attempt.command
        place = head.run_first if command.content is not None else command.place
        row = replace(command, content=None, place=place, model=attempt.run_model, version=attempt.version)
        now = attempt.clock.now()
        return ending.end_run(
            attempt.store, attempt.ref, head, row, how, now=now, placed=placed, balance=attempt.balance
        )

    def _hand_over(self) -> Result:
        """Release at a stored boundary; the wake-up is named in the same write."""
        now = self.attempt.clock.now()
        self.attempt.journal.write(
            lambda head: Draft(
                after=replace(head, lease_until=0, lease_nonce="", wake=head.wake + 1, due_at=now + queueing.WAKE_GRACE)
            )
        )
        return Result.HANDED_OVER

    def _fact(self, kind: str, data: dict[str, object], head: Head, now: int) -> Fact:
        return Fact(type=kind, data=data, at=now, run=head.run, attempt=head.run_attempt)


def _ending(stop: Next, text: str | None = None) -> Ending:
    """The end that a side's rules bring. `text`: what the run says in the end."""
    text = stop.said or text
    if stop.status is RunStatus.FAILED:
        return _failure(stop.reason, "A tool of the agent ended the session as failed.", retryable=False)
    if text is None:
        return Ending(status=stop.status, reason=stop.reason)
    return Ending(status=stop.status, reason=stop.reason, label=_label(text), answer=family.cut_result(text))


def _failure(reason: str, detail: str, *, retryable: bool) -> Ending:
    error = {"type": reason, "detail": detail, "retryable": retryable}
    return Ending(status=RunStatus.FAILED, reason=reason, error=error)


def _model_failure(error: ModelError) -> Ending:
    failure = _failure("model_error", error.detail, retryable=error.retryable)
    status = {"status": error.status} if error.status else {}
    return replace(failure, error={**(failure.error or {}), **status})


def _label(text: str) -> str:
    """First line of the answer, for the `done` step."""
    line = next((line for line in text.splitlines() if line.strip()), "Done")
    return line.strip()[:LABEL_CHARACTERS]

"""Ids: opaque to everyone outside, computed here. An id names its row, so that no lookup table is needed (decision
0002).

A thread id carries 100 random bits. The ids of what lives inside a thread repeat that token and add a tag, so that the
key of the row follows from the id and the caller's org. The org is never part of an id: it comes from the credential.

    thr_<token>   run_<token>_<number>   cmd_<token>_<number>   evt_<token>_<seq>
    msg_<token>_c<number>                the message of command <number>: a user's, or the call of a queued tool
    msg_<token>_r<run>s<step>            the assistant's answer of a model step
    msg_<token>_r<run>t<step>            the tool results of a model step
    msg_<token>_r<run>i<number>          a message that code of a run has placed; the number follows from its call
    msg_<token>_p<place>                 a message that code outside a run has placed
    eff_<token>_<name>                   an effect, 20 characters of its own
    art_<token>_<run>_<step>_<position>  the whole result of a call, where the log keeps only a part of it
    apr_<token>_<run>_<step>_<position>  the approval that a call needs
    qst_<token>_<run>_<step>_<position>_<number>  a question of a call
    queued-<number>                      the call of a tool that command <number> queued; no model's call is named so
"""

import re
from dataclasses import dataclass
from typing import NamedTuple, NewType

OrgId = NewType("OrgId", str)
ThreadId = NewType("ThreadId", str)

TOKEN_CHARACTERS = 20  # base32: 100 bits
QUEUED_CALL = "queued-"
_TOKEN = "[a-z2-7]{20}"
_NUMBER = "[1-9][0-9]{0,14}"
_THREAD = re.compile(rf"thr_({_TOKEN})\Z")
_NUMBERED = re.compile(rf"(run|cmd|evt)_({_TOKEN})_({_NUMBER})\Z")
_MESSAGE = re.compile(rf"msg_({_TOKEN})_(?:c({_NUMBER})|r({_NUMBER})([stid])({_NUMBER})|p({_NUMBER}))\Z")
_QUEUED_CALL = re.compile(rf"{QUEUED_CALL}({_NUMBER})\Z")
_EFFECT = re.compile(rf"eff_({_TOKEN})_({_TOKEN})\Z")


@dataclass(frozen=True)
class ThreadRef:
    """A thread of an org: the pair that every key of its rows begins with."""

    org: str
    token: str

    @property
    def id(self) -> str:
        """The thread's public id."""
        return f"thr_{self.token}"

    def run(self, number: int) -> str:
        """Public id of the run that command `number` started."""
        return f"run_{self.token}_{number}"

    def command(self, number: int) -> str:
        """Public id of a command."""
        return f"cmd_{self.token}_{number}"

    def event(self, seq: int) -> str:
        """Public id of an event."""
        return f"evt_{self.token}_{seq}"

    def user_message(self, number: int) -> str:
        """Public id of the message that command `number` carries."""
        return f"msg_{self.token}_c{number}"

    def asking(self, call_id: str, run: int, step: int) -> str:
        """Public id of the message that holds a call of that model step."""
        queued = _QUEUED_CALL.match(call_id)
        return self.user_message(int(queued.group(1))) if queued else self.answer(run, step)

    def answer(self, run: int, step: int) -> str:
        """Public id of the assistant's message of a model step; asking the model again keeps it."""
        return f"msg_{self.token}_r{run}s{step}"

    def results(self, run: int, step: int) -> str:
        """Public id of the role=tool message of a model step."""
        return f"msg_{self.token}_r{run}t{step}"

    def placed_in_run(self, run: int, number: int) -> str:
        """Public id of a message that code of a run has placed."""
        return f"msg_{self.token}_r{run}i{number}"

    def placed(self, place: int) -> str:
        """Public id of a message that code outside a run has placed."""
        return f"msg_{self.token}_p{place}"

    def effect(self, name: str) -> str:
        """Public id of an effect."""
        return f"eff_{self.token}_{name}"

    def said(self, run: int, step: int) -> str:
        """Public id of the assistant's message that a stop tool of a model step has said."""
        return f"msg_{self.token}_r{run}d{step}"

    def artifact(self, run: int, step: int, position: int) -> str:
        """Public id of the artifact that holds the whole result of a call: the one at that position of a model step."""
        return f"art_{self.token}_{run}_{step}_{position}"

    def approval(self, run: int, step: int, position: int) -> str:
        """Public id of the approval that the call at that position of a model step needs."""
        return f"apr_{self.token}_{run}_{step}_{position}"

    def question(self, run: int, step: int, position: int, number: int) -> str:
        """Public id of the call's question of that number."""
        return f"qst_{self.token}_{run}_{step}_{position}_{number}"


class MessageTag(NamedTuple):
    """Where a message came from: a command, a step of a run, code of a run (`step` 0), or its place says it."""

    command: int = 0
    run: int = 0
    step: int = 0
    place: int = 0


def thread_ref(org: str, thread_id: str) -> ThreadRef | None:
    """The thread that an id names inside an org, or None if it is no thread id."""
    found = _THREAD.match(thread_id)
    return ThreadRef(org, found.group(1)) if found else None


def numbered(org: str, kind: str, text: str) -> tuple[ThreadRef, int] | None:
    """Thread and number of a run, command or event id, or None."""
    found = _NUMBERED.match(text)
    if not found or found.group(1) != kind:
        return None
    return ThreadRef(org, found.group(2)), int(found.group(3))


def inquiry_numbers(ref: ThreadRef, kind: str, text: str) -> tuple[int, ...] | None:
    """The numbers in the id of an approval (`apr`) or a question (`qst`) of this thread, or None."""
    found = re.fullmatch(rf"{kind}_({_TOKEN})((?:_{_NUMBER}){{{3 if kind == 'apr' else 4}}})", text)
    if not found or found.group(1) != ref.token:
        return None
    return tuple(int(number) for number in found.group(2)[1:].split("_"))


def child_numbers(reference: str) -> tuple[int, ...] | None:
    """Run, step and position of the call that made a child, from its reference; None if that is none. Step 0 is before
    the first.
    """
    found = re.fullmatch(rf"(?:sub|ses)(-{_NUMBER}-(?:0|{_NUMBER})-{_NUMBER})", reference)
    return tuple(int(number) for number in found.group(1)[1:].split("-")) if found else None


def queued_call(number: int) -> str:
    """Id of the call that command `number` has queued."""
    return f"{QUEUED_CALL}{number}"


def message_tag(ref: ThreadRef, message_id: str) -> MessageTag | None:
    """Where the message of this thread came from, or None if the id is none of this thread."""
    found = _MESSAGE.match(message_id)
    if not found or found.group(1) != ref.token:
        return None
    if found.group(2):
        return MessageTag(command=int(found.group(2)))
    if found.group(6):
        return MessageTag(place=int(found.group(6)))
    if found.group(4) == "i":
        return MessageTag(run=int(found.group(3)))
    return MessageTag(run=int(found.group(3)), step=int(found.group(5)))


def effect_name(ref: ThreadRef, effect_id: str) -> str | None:
    """The name in the id of an effect of this thread, or None if the id is none of it."""
    found = _EFFECT.match(effect_id)
    return found.group(2) if found and found.group(1) == ref.token else None

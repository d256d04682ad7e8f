"""How the code of a tool asks a person: the call is set aside until there is an answer, and then run again.

A run that waits holds no worker, so the code cannot stand still inside `ask`. It is left by an exception and, once the
answer is stored, run from its start with the same token; `ask` then gives the answers in the order of the questions.
What stands before a question therefore happens again: ask first, act afterwards.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Question:
    """A call has asked: its worker is free."""

    call_id: str
    question: Any
    options: tuple[Any, ...]
    expires_in: float | None


class Asking(BaseException):
    """Leaves the code of a tool that has no answer yet. A BaseException so that `except Exception` lets it pass."""

    def __init__(self, question: Question) -> None:
        super().__init__("the call waits for an answer")
        self.question = question


@dataclass(kw_only=True)
class Asker:
    """Questions of one call. `answers`: what has been answered so far."""

    call_id: str
    answers: tuple[Any, ...] = ()
    given: int = field(default=0, init=False)

    def ask(self, question: Any, options: Sequence[Any], expires_in: float | None) -> Any:
        """The answer to the next question. Raises Asking if there is none yet, ValueError for a bad `expires_in`."""
        if expires_in is not None and not 0 < expires_in < math.inf:
            raise ValueError("expires_in must be seconds above 0")
        if self.given < len(self.answers):
            self.given += 1
            return self.answers[self.given - 1]
        raise Asking(Question(call_id=self.call_id, question=question, options=tuple(options), expires_in=expires_in))

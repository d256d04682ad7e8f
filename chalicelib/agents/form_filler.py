"""A sample with people: `form_filler` asks its user for what a form still lacks, one question after the other.

The tool is left at each question and run again from its start when the answer is there, so it asks first and acts only
when the form is whole. An answer that does not fit is asked for again, with the reason.
"""

import json
import re
from collections.abc import Callable
from typing import Annotated, Literal, get_args

from chalicelib.engine.agent import Agent, ToolFailure, tool
from chalicelib.engine.state import ThreadState

FORM, FILE = "registration", "/registration.json"
#: Values of one field that are looked at: who answers wrongly so often needs a person, not a form.
TRIES = 3
MOST_GUESTS = 20
_EMAIL = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+\Z")
Day = Literal["Friday", "Saturday", "Sunday"]
_DAYS: tuple[str, ...] = get_args(Day)


def _name(given: object) -> str:
    if not isinstance(given, str) or not given.strip() or len(given) > 100:
        raise ValueError("a name has 1 to 100 characters")
    return given.strip()


def _email(given: object) -> str:
    if not isinstance(given, str) or not _EMAIL.match(given.strip()):
        raise ValueError("that is no mail address")
    return given.strip()


def _day(given: object) -> str:
    if given not in _DAYS:
        raise ValueError(f"it is one of {', '.join(_DAYS)}")
    return str(given)


def _guests(given: object) -> int:
    if isinstance(given, str) and given.strip().isdecimal():
        given = int(given)
    if not isinstance(given, int) or isinstance(given, bool) or not 1 <= given <= MOST_GUESTS:
        raise ValueError(f"it is a whole number from 1 to {MOST_GUESTS}")
    return given


#: Field -> what is asked, what is offered, and what makes of an answer the value of the field or says what is wrong.
_FIELDS: dict[str, tuple[str, tuple[str, ...], Callable[[object], object]]] = {
    "name": ("What is your name?", (), _name),
    "email": ("Where can we write to you?", (), _email),
    "day": ("On which day will you come?", _DAYS, _day),
    "guests": ("How many are you?", (), _guests),
}


@tool(on_retry="again")
def fill_form(
    state: ThreadState,
    name: Annotated[str | None, "Only if the user has said it"] = None,
    email: Annotated[str | None, "Only if the user has said it"] = None,
    day: Annotated[Day | None, "Only if the user has said it"] = None,
    guests: Annotated[int | None, "Only if the user has said it"] = None,
) -> dict[str, object]:
    """Fill in the registration form. The user is asked for each field that is missing or does not fit."""
    given: dict[str, object] = {"name": name, "email": email, "day": day, "guests": guests}
    form = {field: _wanted(state, field, given[field]) for field in _FIELDS}
    state.set_value(FORM, form)
    entry = state.write_file(FILE, json.dumps(form, ensure_ascii=False, indent=2) + "\n", "application/json")
    return {"form": form, "path": entry.path}


def _wanted(state: ThreadState, field: str, given: object) -> object:
    """The value of a field: what was given if it fits, else what the user answers."""
    question, options, check = _FIELDS[field]
    fault = ""
    for _ in range(TRIES):
        if given is None:
            given = state.ask(f"{question} ({fault})" if fault else question, options)
        try:
            return check(given)
        except ValueError as error:
            given, fault = None, str(error)
    raise ToolFailure(f"The field {field} was not filled in: {fault}.")


form_filler = Agent(
    name="form_filler",
    title="Form filler",
    description="Fills in a form and asks its user for what is missing.",
    prompt=(
        "You register people for an event. Call `fill_form` once, with what the user has told you: it asks for the "
        "rest by itself. Then repeat the form to the user."
    ),
    tools=[fill_form],
)

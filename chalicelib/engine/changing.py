"""A change of the thread for which code of a run waits: made by the thread that writes, behind the fencing token."""

from dataclasses import replace

from chalicelib.domain.errors import InvalidRequest, NotFound, QueueFull, ThreadBusy, ThreadTerminated
from chalicelib.domain.model import Head
from chalicelib.domain.queueing import Draft
from chalicelib.engine.journal import Journal
from chalicelib.engine.run_files import Asked


class _Unchanged(Exception):
    """A decision that leaves everything as it is: nothing is written."""


def make(journal: Journal, asked: Asked) -> None:
    """Make a change and tell who waits for it. It is no progress: a run that does this alone, again and again, is lost
    all the same. Raises as `Journal.write`.
    """

    def decide(head: Head) -> Draft:
        draft = asked.change(head)
        if draft is None:
            raise _Unchanged
        if not asked.of_run:
            return draft
        return replace(draft, facts=tuple(replace(f, run=head.run, attempt=head.run_attempt) for f in draft.facts))

    try:
        journal.write(decide)
    except _Unchanged:
        asked.settle()
    except (InvalidRequest, NotFound, ThreadBusy, ThreadTerminated, QueueFull) as refusal:
        asked.settle(refusal)
    else:
        asked.settle()

"""What a thread has spent on models: a balance that each run that ends carries on.

Pure. The row of a run that has ended holds the balance of the whole thread up to its end, a line a model, and the head
names that row. So the totals change in the same write as the fact that they count, a repeated write cannot count twice,
and reading them costs two rows whatever the thread's length. What the run in flight has used so far is in the head.
"""

from collections.abc import Iterable
from dataclasses import replace

from chalicelib.domain.model import Head, ModelSpent, Tokens

#: Lines of a balance; the calls of further models are counted together, under this name.
MODELS = 64
OTHERS = "other models"
#: Lines of a run in the head, which stays below 1 KB.
RUN_MODELS = 6


def carried_on(
    balance: Iterable[ModelSpent], model: str | None, *, calls: int, usage: Tokens
) -> tuple[ModelSpent, ...]:
    """The balance with `calls` more calls of the thread's and this usage. `calls` counts all calls of the thread."""
    lines = {line.model: line for line in balance}
    requests = calls - sum(line.requests for line in lines.values())
    if not requests and usage == Tokens():
        return tuple(lines.values())
    return _with(lines.values(), _used(model or OTHERS, requests, usage), MODELS)


def called(head: Head, *, model: str, own: str, usage: Tokens) -> Head:
    """The head with one more model call of the run in flight. `own`: the model that stands in the run's row.

    Calls of that model are counted with the whole thread's (`carried_on`), those of others in lines of their own.
    """
    after = replace(head, model_calls=head.model_calls + 1, run_usage=head.run_usage.plus(usage))
    if model == own and not head.run_spent:
        return after
    lines = head.run_spent or (_used(own, 0, head.run_usage),)
    return replace(after, run_spent=_with(lines, _used(model, int(model != own), usage), RUN_MODELS))


def so_far(balance: Iterable[ModelSpent], head: Head, model: str | None) -> tuple[ModelSpent, ...]:
    """The balance with what the run in flight has used by now."""
    if not head.run_spent:
        return carried_on(balance, model, calls=head.model_calls, usage=head.run_usage)
    lines = tuple(balance)
    for line in head.run_spent:
        lines = _with(lines, line, MODELS)
    named = carried_on(lines, head.run_spent[0].model, calls=head.model_calls, usage=Tokens())
    return tuple(line for line in named if line != ModelSpent(model=line.model))


def _used(model: str, requests: int, usage: Tokens) -> ModelSpent:
    return ModelSpent(
        model=model,
        requests=requests,
        input=usage.input,
        output=usage.output,
        cache_read=usage.cache_read,
        cost_micro_usd=usage.cost_micro_usd or 0,
        unpriced=usage.cost_micro_usd is None,
    )


def _with(lines: Iterable[ModelSpent], line: ModelSpent, most: int) -> tuple[ModelSpent, ...]:
    """The lines with one more, added to that of its model; beyond `most` lines to that of the others."""
    known = {one.model: one for one in lines}
    name = line.model if line.model in known or len(known) < most else OTHERS
    known[name] = _sum(known.get(name, ModelSpent(model=name)), line)
    return tuple(known.values())


def _sum(one: ModelSpent, other: ModelSpent) -> ModelSpent:
    return replace(
        one,
        requests=one.requests + other.requests,
        input=one.input + other.input,
        output=one.output + other.output,
        cache_read=one.cache_read + other.cache_read,
        cost_micro_usd=one.cost_micro_usd + other.cost_micro_usd,
        unpriced=one.unpriced or other.unpriced,
    )


def together(lines: Iterable[ModelSpent]) -> tuple[ModelSpent, ...]:
    """One line for each model, of the lines of several threads."""
    found: dict[str, ModelSpent] = {}
    for line in lines:
        found[line.model] = _sum(found.get(line.model, ModelSpent(model=line.model)), line)
    return tuple(found.values())

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


def carried_on(
    balance: Iterable[ModelSpent], model: str | None, *, calls: int, usage: Tokens
) -> tuple[ModelSpent, ...]:
    """The balance with `calls` more calls of the thread's and this usage. `calls` counts all calls of the thread."""
    lines = {line.model: line for line in balance}
    requests = calls - sum(line.requests for line in lines.values())
    if not requests and usage == Tokens():
        return tuple(lines.values())
    name = model or OTHERS
    if name not in lines and len(lines) >= MODELS:
        name = OTHERS
    line = lines.get(name, ModelSpent(model=name))
    lines[name] = replace(
        line,
        requests=line.requests + requests,
        input=line.input + usage.input,
        output=line.output + usage.output,
        cache_read=line.cache_read + usage.cache_read,
        cost_micro_usd=line.cost_micro_usd + (usage.cost_micro_usd or 0),
        unpriced=line.unpriced or usage.cost_micro_usd is None,
    )
    return tuple(lines.values())


def so_far(balance: Iterable[ModelSpent], head: Head, model: str | None) -> tuple[ModelSpent, ...]:
    """The balance with what the run in flight has used by now."""
    return carried_on(balance, model, calls=head.model_calls, usage=head.run_usage)


def together(lines: Iterable[ModelSpent]) -> tuple[ModelSpent, ...]:
    """One line for each model, of the lines of several threads."""
    found: dict[str, ModelSpent] = {}
    for line in lines:
        before = found.get(line.model, ModelSpent(model=line.model))
        found[line.model] = replace(
            before,
            requests=before.requests + line.requests,
            input=before.input + line.input,
            output=before.output + line.output,
            cache_read=before.cache_read + line.cache_read,
            cost_micro_usd=before.cost_micro_usd + line.cost_micro_usd,
            unpriced=before.unpriced or line.unpriced,
        )
    return tuple(found.values())

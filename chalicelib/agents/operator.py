"""A sample with approvals: `operator` looks freely and touches what is dangerous only when a person has allowed it.

The rule is a function of the arguments: the same tool runs at once for a small change and waits for a large one. What
it runs is a play of three services, kept as a durable value of the thread; put your own system in its place.
"""

from typing import Any, Literal

from chalicelib.engine.agent import Agent, tool
from chalicelib.engine.state import ThreadState

Service = Literal["web", "worker", "database"]

VALUE = "replicas"
AT_FIRST = {"web": 3, "worker": 2, "database": 1}
#: Most replicas that a service gets without asking anybody: from there on it costs real money.
FREE_REPLICAS = 5


def is_dangerous(arguments: dict[str, Any]) -> bool:
    """True for what stops a service, makes it dear, or touches the data."""
    return arguments["service"] == "database" or not 1 <= arguments["replicas"] <= FREE_REPLICAS


@tool(on_retry="again")
def list_services(state: ThreadState) -> dict[str, int]:
    """All services and how many replicas of each run."""
    return _replicas(state)


@tool(on_retry="again")
def check_service(state: ThreadState, service: Service) -> dict[str, object]:
    """Look at one service."""
    replicas = _replicas(state)[service]
    return {"service": service, "replicas": replicas, "health": "up" if replicas else "stopped"}


# "again" is right here because the call says what shall be, not what to add: twice changes nothing more.
@tool(on_retry="again", requires_approval=is_dangerous)
def scale_service(state: ThreadState, service: Service, replicas: int) -> dict[str, object]:
    """Set how many replicas of a service run; 0 stops it."""
    state.set_value(VALUE, {**_replicas(state), service: replicas})
    state.log({"name": "scaled", "data": {"service": service, "replicas": replicas}})
    return {"service": service, "replicas": replicas}


def _replicas(state: ThreadState) -> dict[str, int]:
    stored: dict[str, int] = state.get_value(VALUE, AT_FIRST)
    return dict(stored)


operator = Agent(
    name="operator",
    title="Operator",
    description="Looks after three services; what is dangerous waits for a person.",
    prompt=(
        "You look after the services of a small shop. Look before you change anything. Some changes wait until a "
        "person has allowed them; if one is refused, do not try it again, and say why it was refused."
    ),
    tools=[list_services, check_service, scale_service],
    # Two changes at once would both start from what was there before.
    parallel_tool_calls=False,
)

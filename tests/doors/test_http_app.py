"""app.py: it imports on a bare machine, registers every function that is deployed, and loads no more than it needs."""

import os
import subprocess
import sys
from pathlib import Path

from chalice.app import Chalice, SQSEventConfig

import app as doors

ROOT = Path(__file__).parents[2]
# Deployed as app.<name>; infra/resources.json hangs settings on them.
FUNCTIONS = ["run_turn", "fan_out", "connect", "message", "disconnect", "sweep", "provision"]

SDKS = ("boto3", "botocore", "pynamodb")


def bare_python(code: str) -> str:
    """What code prints in a process without environment and home."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def test_app_imports_without_credentials_and_environment_and_changes_none() -> None:
    code = "import os; before = dict(os.environ); import app; print(dict(os.environ) == before, app.app.app_name)"
    assert bare_python(code) == "True turnlog"


def test_importing_app_loads_no_cloud_sdk_no_house_and_no_door_but_http() -> None:
    rooms = [f"chalicelib.{room}" for room in ("engine", "services", "adapters", "bootstrap")]
    code = f"import sys, app; print([name for name in sys.modules if name.startswith({(*SDKS, *rooms)})])"
    assert bare_python(code) == "[]"


def test_every_function_is_registered_by_its_name_in_app() -> None:
    sources = {source.name: source.handler_string for source in doors.app.event_sources}
    sources |= {each.name: each.handler_string for each in doors.app.pure_lambda_functions}
    sources |= {each.name: each.handler_string for each in doors.app.websocket_handlers.values()}
    assert sources == {name: f"app.{name}" for name in FUNCTIONS}
    assert set(doors.app.websocket_handlers) == {"$connect", "$default", "$disconnect"}


def test_a_wake_up_comes_alone() -> None:
    wake = next(source for source in doors.app.event_sources if source.name == "run_turn")
    assert isinstance(wake, SQSEventConfig)
    assert wake.batch_size == 1
    assert wake.queue is not None
    assert wake.queue.endswith(".fifo")


def test_websocket_events_need_no_region() -> None:
    """Chalice's own client would raise without one, before any code of ours."""
    code = "import app; app.app.websocket_api.configure_from_api_id('id', 'live'); print('ok')"
    assert bare_python(code) == "ok"


def test_the_app_is_a_chalice_app_whose_answers_may_be_bytes() -> None:
    assert isinstance(doors.app, Chalice)
    assert doors.app.api.binary_types == ["*/*"]

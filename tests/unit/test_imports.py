"""What a cold start loads: functions that only answer or push never load a provider, and imports stay cheap."""

import subprocess
import sys
from collections.abc import Callable
from compileall import compile_dir, compile_file
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
#: What each kind of function has loaded once it has answered: its door, the house, the services that it asks.
FUNCTIONS = {
    "http": "import app, chalicelib.bootstrap, chalicelib.telemetry, chalicelib.agents;"
    "from chalicelib.services import accept, cancel, edit, read, appending",
    "websocket": "import app, chalicelib.bootstrap, chalicelib.telemetry; app._door('socket');"
    "from chalicelib.services import subscribe, tickets",
    "stream": "import app, chalicelib.bootstrap, chalicelib.telemetry; app._door('stream');"
    "from chalicelib.services import fan_out",
    "runner": "import app, chalicelib.bootstrap, chalicelib.telemetry, chalicelib.agents; app._door('runner');"
    "from chalicelib.services import take_turn; import chalicelib.engine.models;"
    "chalicelib.engine.models.ModelRegistry(scripted=True).resolve('offline:echo')",
}
#: Import cost in that of `botocore.session`, measured in the same run (design, section 5).
RATIOS = {"http": 2.0, "websocket": 2.0, "stream": 2.0, "runner": 2.5}
PROVIDERS = ("pydantic_ai", "openai", "anthropic", "boto3", "moto")
#: What runs are played by, and what models say.
ENGINE = (
    "chalicelib.engine.turn",
    "chalicelib.engine.ending",
    "chalicelib.engine.models.providers",
    "chalicelib.ports.models",
)
ROUNDS = 5
BATCHES = 5

Run = Callable[[str], str]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Runs Python in a process of its own, byte-compiled before."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "pycache_prefix", str(tmp_path_factory.mktemp("compiled")))
        compile_dir(ROOT / "chalicelib", quiet=1)
        compile_file(ROOT / "app.py", quiet=1)
        environment = {"PYTHONPYCACHEPREFIX": str(sys.pycache_prefix), "PATH": "/usr/bin:/bin"}

    def answer(code: str) -> str:
        ran = subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, env=environment, check=True, capture_output=True, text=True
        )
        return ran.stdout.strip()

    answer("import botocore.session")
    for code in FUNCTIONS.values():
        answer(code)  # the libraries are compiled now too
    return answer


@pytest.mark.parametrize("function", FUNCTIONS)
def test_no_function_loads_a_provider_before_a_run_names_one(run: Run, function: str) -> None:
    unwanted = PROVIDERS if function == "runner" else (*PROVIDERS, *ENGINE)
    loaded = run(f"{FUNCTIONS[function]}; import sys; print([n for n in {unwanted!r} if n in sys.modules])")
    assert loaded == "[]"


@pytest.mark.parametrize("function", FUNCTIONS)
def test_imports_cost_no_more_than_a_multiple_of_botocore(run: Run, function: str) -> None:
    def cost(code: str) -> float:
        return float(run(f"import time; t = time.process_time(); {code}; print(time.process_time() - t)"))

    pairs: list[tuple[float, float]] = []
    for _ in range(BATCHES):  # a busy machine is measured again, a heavy import stays heavy
        pairs += [(cost(FUNCTIONS[function]), cost("import botocore.session")) for _ in range(ROUNDS)]
        ratio = min(ours for ours, _ in pairs) / min(theirs for _, theirs in pairs)
        if ratio <= RATIOS[function]:
            break
    print(f"{function}: {ratio:.2f} times botocore.session")
    assert ratio <= RATIOS[function]

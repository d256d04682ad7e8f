"""What the user chose, read once from the environment of the command.

It knows names and defaults only; it opens nothing and starts nothing. Every wish that cannot be granted is a
`Refusal`: one sentence for the terminal, never a traceback.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DEFAULT_PORT = 8000
REAL_MODEL = "smollm2"  # the one MODEL that this cloud starts itself


class Refusal(Exception):
    """The command cannot go on; the text says why and what to do, in one sentence."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """`model` is a `provider:name`, or `smollm2`; `app` is the module of the Lambda entry points."""

    port: int
    state: Path
    model: str
    app: str

    @property
    def url(self) -> str:
        """The address that the app process listens on."""
        return f"http://127.0.0.1:{self.port}"


def read(environ: Mapping[str, str], arguments: Sequence[str]) -> Options:
    """The options of one start. Raises Refusal."""
    parser = argparse.ArgumentParser(prog="python -m infra.local", description="Run Turnlog on this machine.")
    parser.add_argument("--app", default="app", help="module of the Lambda entry points (default: app)")
    given = parser.parse_args(arguments)
    state = Path(environ.get("TURNLOG_STATE_DIR") or ".turnlog")
    return Options(
        port=_port(environ.get("PORT") or environ.get("TURNLOG_PORT") or str(DEFAULT_PORT)),
        state=state if state.is_absolute() else ROOT / state,
        model=_model(environ.get("MODEL") or environ.get("TURNLOG_MODEL") or "offline:echo"),
        app=given.app,
    )


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 65535:
        raise Refusal(f"PORT must be a number from 1 to 65535, not {text!r}.")
    return int(text)


def _model(text: str) -> str:
    if text != REAL_MODEL and ":" not in text:
        raise Refusal(f"MODEL must be {REAL_MODEL} or provider:name (for example offline:echo), not {text!r}.")
    return text

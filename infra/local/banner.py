"""What the terminal says when the local cloud is up: address, keys, where state lies, what to try."""

from infra.local.options import ROOT, Options
from infra.local.state import ORGS, StateFolder, read_keys


def text(options: Options, folder: StateFolder, *, own_emulator: bool) -> str:
    """The banner. The lines with `=` may be pasted into a shell or a .env file."""
    keys = read_keys(folder.keys)
    return f"""
Turnlog is up at {options.url} (local stage, model {options.model}). Ctrl-C stops all of it.

  TURNLOG_URL={options.url}
  TURNLOG_KEY={keys[ORGS[0]]}
  TURNLOG_KEY_B={keys[ORGS[1]]}

{_state(folder, own_emulator)}
Try, in another terminal, after exporting the lines above:

  curl -s {options.url}/api/threads -H "Authorization: Bearer $TURNLOG_KEY" \\
    -H "Content-Type: application/json" -d '{{"agent": "assistant", "message": "hello"}}'
  {_command()} new "hello"

The second key is of another org: nothing of the first can be seen with it.
"""


def _state(folder: StateFolder, own_emulator: bool) -> str:
    if not own_emulator:
        return f"State is kept at the endpoint that you gave; keys and secret lie in {folder.path}.\n"
    return (
        f"State is kept in {folder.path}. The emulator saves it when this stops; a kill -9 of the emulator\n"
        "loses what came since the last start. The app process may be killed at any time.\n"
    )


def _command() -> str:
    installed = ROOT / ".venv" / "bin" / "turnlog"
    return str(installed.relative_to(ROOT)) if installed.exists() else "python -m chalicelib.cli"

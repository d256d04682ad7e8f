"""What services and engine need from outside, as Protocols: no SDK, no implementation, one page for each concern.

Adapters implement these; only `bootstrap` knows which. Every method may be called twice with the same arguments:
each docstring says what the second call does. A page is loaded with the first name of it that somebody asks for: the
function that answers HTTP never loads what models say.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chalicelib.ports.models import *  # noqa: F403
    from chalicelib.ports.sockets import *  # noqa: F403
    from chalicelib.ports.system import *  # noqa: F403
    from chalicelib.ports.table import *  # noqa: F403

_PAGES = {
    "models": (
        "JSON", "CallArgs", "CallStart", "Cancel", "Chunk", "Model", "ModelRequest", "Models", "Reasoning", "Stop",
        "Text", "ToolSpec", "Usage",
    ),
    "sockets": ("Connection", "Directory", "SocketGone", "Sockets", "Subscriber", "Ticket"),
    "system": ("Blobs", "Clock", "FileObjects", "Ids", "Purge", "Queue", "Uploaded"),
    "table": (
        "DUE_SHARDS", "Commit", "Committed", "Due", "KeyRow", "LogPage", "Logged", "Moved", "Opened", "Remembered",
        "Store", "Upward",
    ),
}  # fmt: skip
_PAGE_OF = {name: page for page, names in _PAGES.items() for name in names}


if not TYPE_CHECKING:  # a checker reads the pages, and would take any name from here

    def __getattr__(name: str) -> object:
        if name not in _PAGE_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_PAGE_OF[name]}"), name)

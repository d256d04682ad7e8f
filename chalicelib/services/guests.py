"""Code of agents outside of turns: on a thread of its own, with a deadline, whatever it raises.

Python cannot stop a thread: one whose time is over is told by its flag and left behind, and what it then still wants to
write is refused (`services.outside`).
"""

import asyncio
import inspect
import queue
import threading
from collections.abc import Callable
from typing import Any

from chalicelib.engine.workers import Flag


class Late(Exception):
    """The code took longer than it may."""


def run(work: Callable[[], Any], seconds: float, flag: Flag) -> Any:
    """What `work` answers, awaited if it is awaitable. Raises what it raises, and Late; the flag is then set."""
    ended: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()

    def play() -> None:
        try:
            answer = work()
            ended.put((asyncio.run(_awaited(answer)) if inspect.isawaitable(answer) else answer, None))
        except BaseException as error:  # noqa: BLE001 - it is raised again where the work was asked for
            ended.put((None, error))

    threading.Thread(target=play, name="guest", daemon=True).start()
    try:
        answer, error = ended.get(timeout=seconds)
    except queue.Empty:
        flag.set()
        raise Late(f"no result in {seconds:g} s") from None
    flag.set()
    if error is not None:
        raise error
    return answer


async def _awaited(value: Any) -> Any:
    return await value

"""Durable values of a thread by the front door: any JSON under a name, until it is replaced or removed.

They are the same that tools read and set (`engine.notes`), tell no event and wake nobody. A value that is put twice is
the same value. Removing what is not there answers NotFound.
"""

from dataclasses import dataclass
from typing import Any

from chalicelib.domain.commands import Principal
from chalicelib.domain.errors import NotFound
from chalicelib.domain.model import Value
from chalicelib.engine.notes import check_name, checked_value
from chalicelib.ports import Store
from chalicelib.services.appending import Appender, alive, known


@dataclass(frozen=True, kw_only=True)
class Durable:
    """Durable values of threads."""

    store: Store
    appender: Appender

    def get_value(self, p: Principal, thread_id: str, name: str) -> Any:
        """A value. Raises NotFound, InvalidRequest for a name that none can have."""
        check_name(name)
        ref = known(p.org, thread_id)
        opened = self.store.open(ref, values=[name])
        alive(opened.head)
        if name not in opened.values:
            raise NotFound("There is no value of that name.")
        return opened.values[name].value

    def put_value(self, p: Principal, thread_id: str, name: str, value: Any) -> Any:
        """Create or replace a value; answers it. Raises NotFound, InvalidRequest, TooLarge."""
        checked = checked_value(name, value)
        row = Value(name=name, value=checked, updated_at=self.appender.clock.now())
        if not self.store.put_value(known(p.org, thread_id), row):
            raise NotFound
        return checked

    def delete_value(self, p: Principal, thread_id: str, name: str) -> None:
        """Remove a value. Raises NotFound, also for one that was removed before."""
        check_name(name)
        if not self.store.remove_value(known(p.org, thread_id), name):
            raise NotFound

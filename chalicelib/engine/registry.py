"""The registry of a thread and its inbox, as they are read. Light: the front door reads them too."""

from chalicelib.domain.children import REPORTS_A_WRITE, Heard
from chalicelib.domain.ids import ThreadRef
from chalicelib.domain.model import Child
from chalicelib.ports import Store


def registry(store: Store, ref: ThreadRef) -> list[Child]:
    """All rows of a thread's registry."""
    found: list[Child] = []
    while page := store.children(ref, after=found[-1].reference if found else "", limit=100):
        found += page
    return found


def reports(store: Store, ref: ThreadRef) -> list[Heard]:
    """What is in a thread's inbox, oldest first, as much as one write takes in."""
    found = sorted(store.inbox(ref, limit=REPORTS_A_WRITE), key=lambda report: (report.at, report.key))
    if not found:
        return []
    rows = store.open(ref, head=False, children={report.reference for report in found}).children
    return [(report, rows[report.reference]) for report in found]

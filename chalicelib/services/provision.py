"""An operator makes an org and its first key, from outside of every org: the only way in that needs no credential.

It must not be reachable through a public door. It guarantees that a key's secret is answered once, by the call that
made it, and that installing a known key again changes nothing. Rows of orgs do not exist yet: an org is its id, and its
id is readable in each of its keys.
"""

import base64
from typing import Any

from chalicelib.domain.commands import Level
from chalicelib.domain.errors import InvalidRequest
from chalicelib.ports import Clock, Directory, Ids, KeyRow
from chalicelib.services.credentials import KeyText, make_key, parse_key

KEY_NAME = "first key"


class Provision:
    """Makes orgs. `stage` is written into the keys, so that one of another stage is told at sight."""

    def __init__(self, *, directory: Directory, clock: Clock, ids: Ids, stage: str) -> None:
        self._directory = directory
        self._clock = clock
        self._ids = ids
        self._stage = stage

    def run(self, *, key_name: str = KEY_NAME, key: str | None = None) -> dict[str, Any]:
        """{org_id, key_id, key}: a new org with an admin key, or exactly the org and the key that `key` spells.

        Without `key` each call makes another org. With it a second call changes nothing. InvalidRequest for a text that
        is no key of this stage.
        """
        made = self._given(key) if key is not None else make_key(self._ids, self._stage, f"org_{self._ids.token()}")
        row = self._row(made, key_name)
        self._directory.put_key(row)
        return {"org_id": row.org, "key_id": row.key_id, "key": made.text}

    def _given(self, text: str) -> KeyText:
        key = parse_key(text)
        if key is None:
            raise InvalidRequest.at("key", "is no key, or has a typo")
        if key.stage != self._stage:
            raise InvalidRequest.at("key", f"is a key of the stage {key.stage}, this is {self._stage}")
        return key

    def _row(self, key: KeyText, name: str) -> KeyRow:
        return KeyRow(
            sha256=key.sha256,
            key_id=_key_id(key),
            org=key.org,
            name=name,
            level=Level.ADMIN.value,
            prefix=key.prefix,
            user=None,
            created_at=self._clock.now(),
        )


def _key_id(key: KeyText) -> str:
    """Follows from the key: installing it twice answers the same id. 100 bits of its hash tell nothing of it."""
    return "key_" + base64.b32encode(bytes.fromhex(key.sha256)).decode().lower()[:20]

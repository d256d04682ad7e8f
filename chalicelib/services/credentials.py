"""API keys: how their text is made and read, and whether the key behind a token or a websocket is valid now.

    tl_<stage>_<org token>_<secret>_<checksum>

It must not know doors or what a principal may do. It guarantees that only the SHA-256 of a key is ever looked up or
kept, that the org comes from the stored row, and that a revoked key is refused within `CACHE_SECONDS` in every process.
"""

import base64
import hmac
import re
from collections import OrderedDict
from hashlib import sha256
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

from chalicelib.domain.commands import Level, Principal
from chalicelib.domain.errors import Unauthorized
from chalicelib.ports import Clock, Ids, KeyRow

if TYPE_CHECKING:
    from chalicelib.ports import Directory

CACHE_SECONDS = 30  # half of what spec section 6 allows an ended credential to go on receiving
CACHE_KEYS = 1_024  # of one process; a row is below 1 KB
CHECKSUM_CHARACTERS = 6  # 30 bits: one typo in a billion is not told at once
PREFIX_CHARACTERS = 4  # of the secret, shown in lists so that people tell their keys apart
_SECRET_TOKENS = 3  # of 100 random bits each: more than 256
_KEY = re.compile(r"(tl_([A-Za-z0-9-]{1,32})_([a-z2-7]{20})_([A-Za-z0-9]{43,128}))_([a-z2-7]{6})", re.ASCII)


class KeyText(NamedTuple):
    """A key as its text says it: nothing here is proof of anything but the absence of typos."""

    text: str
    stage: str
    org: str
    secret: str

    @property
    def sha256(self) -> str:
        """What the key is looked up by, as hex."""
        return hashed(self.text)

    @property
    def prefix(self) -> str:
        """The part that may be shown."""
        return f"tl_{self.stage}_{self.org.removeprefix('org_')}_{self.secret[:PREFIX_CHARACTERS]}"


def hashed(secret: str) -> str:
    """SHA-256 of a key or a ticket, as hex: they carry so many random bits that no salt is needed."""
    return sha256(secret.encode()).hexdigest()


def make_key(ids: Ids, stage: str, org: str) -> KeyText:
    """A new key of an org, with 300 random bits. ValueError if stage or org cannot stand in a key."""
    secret = "".join(ids.token() for _ in range(_SECRET_TOKENS))
    body = f"tl_{stage}_{org.removeprefix('org_')}_{secret}"
    made = parse_key(f"{body}_{_checksum(body)}")
    if made is None:
        raise ValueError(f"no key can be made for stage {stage!r} and org {org!r}")
    return made


def parse_key(text: str) -> KeyText | None:
    """The parts of a key; None for any other text, and for a key with a typo."""
    found = _KEY.fullmatch(text)
    if found is None or not hmac.compare_digest(_checksum(found[1]), found[5]):
        return None
    return KeyText(text=text, stage=found[2], org=f"org_{found[3]}", secret=found[4])


def _checksum(body: str) -> str:
    return base64.b32encode(sha256(body.encode()).digest()).decode().lower()[:CHECKSUM_CHARACTERS]


class Credentials:
    """Valid or not, for doors and at each push. Safe to use from several threads."""

    def __init__(self, *, directory: "Directory", clock: Clock) -> None:
        self._directory = directory
        self._clock = clock
        self._rows: OrderedDict[str, tuple[int, KeyRow]] = OrderedDict()
        self._lock = Lock()

    def verify(self, token: str) -> Principal:
        """Who a bearer token stands for. Unauthorized if it is unknown, revoked or no key at all."""
        key = parse_key(token)
        if key is None:
            raise Unauthorized("This is no API key, or it has a typo.")
        row = self._valid(key.sha256)
        if row is None:
            raise Unauthorized("This API key is unknown or was revoked.")
        return Principal(org=row.org, key_id=row.key_id, level=_level(row), user=row.user, key_sha256=row.sha256)

    def still_valid(self, key_sha256: str) -> bool:
        """Whether the key behind a ticket or a websocket is valid, as of at most `CACHE_SECONDS` ago."""
        return self._valid(key_sha256) is not None

    def _valid(self, key_sha256: str) -> KeyRow | None:
        row = self._cached(key_sha256) or self._read(key_sha256)
        return row if row is not None and not row.revoked_at else None

    def _cached(self, key_sha256: str) -> KeyRow | None:
        # Wall time: a Lambda's monotonic clock may stand still while it is frozen between two events.
        now = self._clock.now()
        with self._lock:
            at, row = self._rows.get(key_sha256, (0, None))
            if row is None or not 0 <= now - at < CACHE_SECONDS * 1_000_000:
                return None
            self._rows.move_to_end(key_sha256)
            return row

    def _read(self, key_sha256: str) -> KeyRow | None:
        now = self._clock.now()  # before the read: what it answers is at least that new
        row = self._directory.key(key_sha256)
        if row is None:  # not kept: it may be made in a moment, and guesses must not fill the cache
            return None
        with self._lock:
            self._rows[key_sha256] = (now, row)
            self._rows.move_to_end(key_sha256)
            while len(self._rows) > CACHE_KEYS:
                self._rows.popitem(last=False)
        return row


def _level(row: KeyRow) -> Level:
    try:
        return Level(row.level)
    except ValueError:  # written by a newer version: what it may do is not known here
        raise Unauthorized("This API key has a level that is not known here.") from None

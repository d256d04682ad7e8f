"""botocore clients of this process, each made when it is first used.

One session for all. Never boto3: its import costs as much again and gives nothing that is used here. botocore's clients
may be shared by threads, but may not be made by several at once: hence the lock.
"""

from threading import Lock
from typing import Any

from botocore.config import Config
from botocore.session import Session

CONNECT_SECONDS = 1.0
READ_SECONDS = 3.0
POOL = 64  # connections; a local process serves many requests at once


class Clients:
    """Clients by service. `endpoint` None: as botocore resolves it (AWS_ENDPOINT_URL, else AWS)."""

    def __init__(self, *, region: str | None = None, endpoint: str | None = None) -> None:
        self._region = region
        self._endpoint = endpoint
        self._lock = Lock()
        self._session: Session | None = None
        self._made: dict[tuple[str, str | None, str], Any] = {}

    def client(
        self,
        service: str,
        *,
        endpoint: str | None = None,
        attempts: int = 3,
        connect_seconds: float = CONNECT_SECONDS,
        read_seconds: float = READ_SECONDS,
        purpose: str = "",
    ) -> Any:
        """The client of a service; the first caller's timeouts and attempts hold for all of one purpose."""
        where = endpoint or self._endpoint
        with self._lock:
            if (service, where, purpose) not in self._made:
                config = Config(
                    connect_timeout=connect_seconds,
                    read_timeout=read_seconds,
                    retries={"mode": "standard", "total_max_attempts": attempts},
                    max_pool_connections=POOL,
                    # A presigned address of S3 is otherwise signed in the old way, which newer regions refuse.
                    signature_version="s3v4" if service == "s3" else None,
                    s3={"addressing_style": "path"},  # a bucket's name is no host name at a local endpoint
                )
                self._session = self._session or Session()
                self._made[service, where, purpose] = self._session.create_client(
                    service, region_name=self._region, endpoint_url=where, config=config
                )
            return self._made[service, where, purpose]

"""The Purge port: rows of a deleted thread by partition, objects by prefix.

Rows go in batches of 25 without a condition: nothing that stands below a tombstone is anybody's any more. What
DynamoDB keeps back is sent again.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any
from urllib.parse import quote

from botocore.exceptions import BotoCoreError, ClientError

from chalicelib.adapters import keys
from chalicelib.adapters.clients import Clients
from chalicelib.adapters.codec import Item
from chalicelib.adapters.keys import Key
from chalicelib.adapters.table import Table, Unfinished, passes
from chalicelib.adapters.writes import primary
from chalicelib.domain.errors import RetryLater
from chalicelib.domain.ids import ThreadRef

BATCH_WRITE = 25  # requests in a BatchWriteItem (API reference)


class TablePurge:
    """`ports.Purge` on the table and the bucket."""

    def __init__(self, table: Table, clients: Clients, bucket: str) -> None:
        self._table = table
        self._clients = clients
        self._bucket = bucket

    def rows(self, ref: ThreadRef, family: str, block: int | None = None) -> None:
        """See the port."""
        found = self._table.query(keys.partition(ref, family, block), limit=100)
        while batch := list(islice(found, BATCH_WRITE)):
            self._remove([_key(item) for item in batch])

    def beside(self, ref: ThreadRef) -> None:
        """See the port."""
        self._remove([keys.about(ref), keys.spent(ref)])

    def objects(self, ref: ThreadRef) -> None:
        """See the port. Blobs and files have one prefix, uploads another."""
        mine = "/".join(quote(part, safe="") for part in (ref.org, ref.token)) + "/"
        for prefix in (mine, f"uploads/{mine}"):
            for page in self._pages(prefix):
                self._clients.client("s3").delete_objects(Bucket=self._bucket, Delete={"Objects": page, "Quiet": True})

    def _pages(self, prefix: str) -> Iterator[list[dict[str, str]]]:
        """Names below a prefix, up to 1,000 at a time, until there are none."""
        client = self._clients.client("s3")
        try:
            while found := client.list_objects_v2(Bucket=self._bucket, Prefix=prefix).get("Contents"):
                yield [{"Key": one["Key"]} for one in found]
        except (BotoCoreError, ClientError) as error:
            if not passes(error):
                raise
            raise RetryLater("The object store is busy.", retry_after_seconds=1) from error

    def _remove(self, batch: Sequence[Key]) -> None:
        left: list[Any] = [{"DeleteRequest": {"Key": primary(key)}} for key in batch]

        def send() -> None:
            answer = self._table.client.batch_write_item(RequestItems={self._table.name: left})
            kept = answer.get("UnprocessedItems", {}).get(self._table.name, [])
            if kept:
                left[:] = kept
                raise Unfinished

        self._table.patience.run(send)


def _key(item: Item) -> Key:
    return Key(item["pk"]["S"], item["sk"]["S"])

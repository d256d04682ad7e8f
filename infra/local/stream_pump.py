"""The table stream's event source: reads records in order and calls the fan-out with batches.

It reads from the checkpoint that it keeps in the state folder, else from the oldest record there is, so that nothing
written while no app process lived is missed; a record may come twice. A batch whose handler raises is cut in halves
and tried again; a record that fails alone five times is skipped and told on stderr. Records that the event source's
filter in infra/resources.json leaves out never reach the handler, as on AWS.
"""

import json
import threading
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from infra.local import events, patterns
from infra.local.lambdas import Activity, Function

SHORTEST_SECONDS, BUSY_SECONDS, IDLE_SECONDS = 0.01, 0.04, 0.1  # between two empty reads, growing
OUTAGE_SECONDS = 0.5
FAILED_PAUSE_SECONDS = 0.2  # between two tries of a batch
SHARDS_SECONDS = 10.0  # how often new shards are looked for


@dataclass(frozen=True, kw_only=True)
class Source:
    """The settings of the event source, from infra/resources.json."""

    batch_size: int
    retries: int
    filters: Sequence[Mapping[str, Any]]


def source(template: Mapping[str, Any]) -> Source:
    """The fan-out's event source in the merge template."""
    declared = template["Resources"]["FanOut"]["Properties"]["Events"]["FanOutDynamodbEventSource"]["Properties"]
    return Source(
        batch_size=declared["BatchSize"],
        retries=declared["MaximumRetryAttempts"],
        filters=patterns.load(declared.get("FilterCriteria", {})),
    )


class StreamPump:
    """Started once, stopped once."""

    def __init__(
        self,
        streams: Any,
        stream_arn: str,
        function: Function,
        activity: Activity,
        *,
        settings: Source,
        checkpoint: Path,
    ) -> None:
        self._streams, self._arn, self._settings = streams, stream_arn, settings
        self._function, self._activity = function, activity
        self._checkpoint = checkpoint
        self._done: dict[str, str] = _load(checkpoint, stream_arn)
        self._iterators: dict[str, str | None] = {}
        self._parents: dict[str, str | None] = {}
        self._nap = SHORTEST_SECONDS
        self._bell = activity.bell()
        self._stopping = threading.Event()
        self._poller = threading.Thread(target=self._poll, name="stream-pump", daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._poller.start()

    def stop(self, seconds: float) -> None:
        """Read no more; wait up to `seconds` for the batch at work."""
        self._stopping.set()
        self._bell.set()
        self._poller.join(seconds)

    def _poll(self) -> None:
        waited = SHARDS_SECONDS
        while not self._stopping.is_set():
            try:
                if waited >= SHARDS_SECONDS:
                    self._find_shards()
                    waited = 0.0
                read = sum(self._read(shard) for shard in self._open_shards())
            except (BotoCoreError, ClientError) as error:
                self._outage(error)
                waited = SHARDS_SECONDS
                continue
            if read:
                self._nap = SHORTEST_SECONDS
            else:
                waited += self._pause()

    def _pause(self) -> float:
        seconds = min(self._nap, BUSY_SECONDS if self._activity.busy else IDLE_SECONDS)
        self._nap = SHORTEST_SECONDS if self._bell.wait(seconds) else min(self._nap * 1.3, IDLE_SECONDS)
        self._bell.clear()
        return seconds

    def _outage(self, error: Exception) -> None:
        if not self._stopping.is_set():
            print(f"stream pump: cannot read the stream: {error}", flush=True)
        self._iterators.clear()
        self._stopping.wait(OUTAGE_SECONDS)

    def _find_shards(self) -> None:
        described = self._streams.describe_stream(StreamArn=self._arn)["StreamDescription"]["Shards"]
        self._parents = {shard["ShardId"]: shard.get("ParentShardId") for shard in described}
        for shard in self._parents:
            if shard not in self._iterators:
                self._iterators[shard] = self._iterator(shard)

    def _open_shards(self) -> list[str]:
        """Shards to read now: a child waits until its parent has been read to its end, so that order per key holds."""
        alive = [shard for shard, iterator in self._iterators.items() if iterator]
        return [shard for shard in alive if self._parents.get(shard) not in alive]

    def _iterator(self, shard: str) -> str:
        if after := self._done.get(shard):
            try:
                return self._shard_iterator(shard, ShardIteratorType="AFTER_SEQUENCE_NUMBER", SequenceNumber=after)
            except ClientError:  # the record is trimmed, or an emulator forgot its stream when it restarted
                self._done.pop(shard)
        return self._shard_iterator(shard, ShardIteratorType="TRIM_HORIZON")

    def _shard_iterator(self, shard: str, **start: str) -> str:
        answer = self._streams.get_shard_iterator(StreamArn=self._arn, ShardId=shard, **start)
        return str(answer["ShardIterator"])

    def _read(self, shard: str) -> int:
        """Handle the next batch of a shard; answers how many records were read."""
        answer = self._streams.get_records(ShardIterator=self._iterators[shard], Limit=self._settings.batch_size)
        records = answer["Records"]
        if records:
            made = [events.stream_record(record, self._arn) for record in records]
            self._handle([record for record in made if patterns.wanted(record, self._settings.filters)])
            self._done[shard] = records[-1]["dynamodb"]["SequenceNumber"]
            self._save()
        self._iterators[shard] = answer.get("NextShardIterator")
        return len(records)

    def _handle(self, batch: list[dict[str, Any]]) -> None:
        """Call the function; on an exception try the halves, and a single record a few times."""
        tries = 1 if len(batch) > 1 else self._settings.retries + 1
        for _ in range(tries if batch else 0):
            try:
                self._function(events.stream(batch), ring=False)
                return
            except Exception:  # noqa: BLE001 - the function failed: told on stderr, and the batch comes again
                traceback.print_exc()
            if self._stopping.wait(FAILED_PAUSE_SECONDS):
                break
        if len(batch) > 1:
            middle = len(batch) // 2
            self._handle(batch[:middle])
            self._handle(batch[middle:])
        elif batch:
            print(f"stream pump: skipped record {batch[0]['eventID']} after {tries} tries", flush=True)

    def _save(self) -> None:
        fresh = self._checkpoint.with_suffix(".new")
        fresh.write_text(json.dumps({self._arn: self._done}))
        fresh.replace(self._checkpoint)


def _load(checkpoint: Path, stream_arn: str) -> dict[str, str]:
    try:
        stored = json.loads(checkpoint.read_text())
    except (OSError, ValueError):
        return {}
    return dict(stored.get(stream_arn, {})) if isinstance(stored, dict) else {}

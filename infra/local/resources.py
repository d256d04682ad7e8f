"""Creates in the emulator what infra/resources.json declares for AWS: table, queue, dead-letter queue, bucket.

The template is the only description of the resources; this room translates the few properties that it uses into API
calls. A second call over the same data creates nothing and changes nothing.
"""

import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

from infra.local.options import ROOT

TEMPLATE = ROOT / "infra" / "resources.json"
REGION = "us-east-1"
ACCOUNT = "000000000000"  # the account of every emulator
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "local", "AWS_SECRET_ACCESS_KEY": "local"}  # never real ones


@dataclass(frozen=True, kw_only=True)
class Resources:
    """What was created, by the names that the app's settings use."""

    endpoint: str
    table: str
    stream_arn: str
    queue_url: str
    queue_arn: str
    bucket: str


def template() -> dict[str, Any]:
    """The merge template as it is packaged."""
    parsed: dict[str, Any] = json.loads(TEMPLATE.read_text())
    return parsed


def client(service: str, endpoint: str) -> Any:
    """A botocore client for the emulator: short timeouts, one retry, no proxy, no configuration from outside."""
    config = Config(
        region_name=REGION,
        connect_timeout=2,
        read_timeout=10,
        retries={"total_max_attempts": 2, "mode": "standard"},
        proxies={},
        max_pool_connections=64,
        account_id_endpoint_mode="disabled",
        s3={"addressing_style": "path"},
    )
    session = boto3.Session(
        aws_access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
        region_name=REGION,
    )
    return session.client(service, endpoint_url=endpoint, config=config)


def create(endpoint: str, name: str = "turnlog") -> Resources:
    """Create whatever is not there yet under `name`."""
    declared = template()["Resources"]
    stream_arn = _table(client("dynamodb", endpoint), name, declared["Table"]["Properties"])
    sqs = client("sqs", endpoint)
    dead, _ = _queue(sqs, endpoint, f"{name}-dead.fifo", declared["DeadLetterQueue"]["Properties"], None)
    queue_arn, queue_url = _queue(sqs, endpoint, f"{name}.fifo", declared["Queue"]["Properties"], dead)
    _bucket(client("s3", endpoint), name)
    return Resources(
        endpoint=endpoint, table=name, stream_arn=stream_arn, queue_url=queue_url, queue_arn=queue_arn, bucket=name
    )


def _table(dynamodb: Any, name: str, declared: dict[str, Any]) -> str:
    given = {
        key: declared[key] for key in ("BillingMode", "KeySchema", "AttributeDefinitions", "GlobalSecondaryIndexes")
    }
    stream = {"StreamEnabled": True, **declared["StreamSpecification"]}
    try:
        dynamodb.create_table(TableName=name, StreamSpecification=stream, **given)
        dynamodb.get_waiter("table_exists").wait(TableName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 20})
        expiry = {"AttributeName": declared["TimeToLiveSpecification"]["AttributeName"], "Enabled": True}
        dynamodb.update_time_to_live(TableName=name, TimeToLiveSpecification=expiry)
    except dynamodb.exceptions.ResourceInUseException:
        pass  # made by an earlier start
    return str(dynamodb.describe_table(TableName=name)["Table"]["LatestStreamArn"])


def _queue(sqs: Any, endpoint: str, name: str, declared: dict[str, Any], dead: str | None) -> tuple[str, str]:
    plain = {key: value for key, value in declared.items() if isinstance(value, (str, int, bool))}
    plain.pop("SqsManagedSseEnabled", None)  # encryption at rest means nothing in an emulator
    attributes = {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in plain.items()}
    if dead:
        count = declared["RedrivePolicy"]["maxReceiveCount"]
        attributes["RedrivePolicy"] = json.dumps({"deadLetterTargetArn": dead, "maxReceiveCount": count})
    try:
        url = sqs.get_queue_url(QueueName=name)["QueueUrl"]
    except ClientError as error:
        if "NonExistentQueue" not in str(error):
            raise
        url = sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    return str(arn), endpoint.rstrip("/") + urlsplit(
        url
    ).path  # a stored address may carry the port of an earlier start


def _bucket(s3: Any, name: str) -> None:
    if name not in {bucket["Name"] for bucket in s3.list_buckets()["Buckets"]}:
        s3.create_bucket(Bucket=name)

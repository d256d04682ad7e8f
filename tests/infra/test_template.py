"""The deployed shape: what `chalice package` makes of app.py, .chalice and infra/resources.json together."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from chalicelib.adapters import keys, pages
from chalicelib.adapters.pages import Page
from chalicelib.domain.ids import ThreadRef
from infra.local import patterns, resources
from infra.local.options import ROOT
from infra.local.stream_pump import source

CONFIG = json.loads((ROOT / ".chalice" / "config.json").read_text())
OWN = resources.template()["Resources"]
OVERRIDDEN = {name for name, resource in OWN.items() if "Type" not in resource}
REF = ThreadRef("org", "token")


@pytest.fixture(scope="module")
def packaged(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The template of a deployment of the stage `dev`; its zip holds no dependencies, so nothing is fetched."""
    folder: Path = tmp_path_factory.mktemp("package")
    skip = shutil.ignore_patterns("__pycache__")
    for name in ("chalicelib", ".chalice"):
        shutil.copytree(ROOT / name, folder / name, ignore=skip)
    for name in ("app.py", "infra/resources.json"):
        shutil.copy(ROOT / name, folder)
    (folder / "requirements.txt").touch()
    chalice = [str(Path(sys.executable).parent / "chalice"), "package", "--stage", "dev"]
    done = subprocess.run(
        [*chalice, "--merge-template", "resources.json", "out"],
        cwd=folder,
        env={**os.environ, "AWS_DEFAULT_REGION": resources.REGION},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    template: dict[str, Any] = json.loads((folder / "out" / "sam.json").read_text())
    return template


def _properties(packaged: dict[str, Any], name: str) -> dict[str, Any]:
    properties: dict[str, Any] = packaged["Resources"][name]["Properties"]
    return properties


def test_every_setting_hangs_on_a_name_that_chalice_makes(packaged: dict[str, Any]) -> None:
    for name in OVERRIDDEN:
        assert "Type" in packaged["Resources"][name], f"nothing is named {name} any more"
    for function in ("RunTurn", "FanOut"):
        for event in _properties(packaged, function)["Events"].values():
            assert "Type" in event, f"an event source of {function} has another name now"


def test_no_intrinsic_function_was_merged_into_another(packaged: dict[str, Any]) -> None:
    def look(value: Any) -> None:
        if isinstance(value, dict):
            intrinsic = [key for key in value if key == "Ref" or key.startswith("Fn::")]
            assert not intrinsic or len(value) == 1, value
            for part in value.values():
                look(part)
        elif isinstance(value, list):
            for part in value:
                look(part)

    look(packaged["Resources"])


def test_every_reference_names_a_resource_of_the_template(packaged: dict[str, Any]) -> None:
    declared = packaged["Resources"].keys()
    for reference in _references(packaged["Resources"]):
        assert reference in declared or reference.startswith("AWS::"), reference


def _references(value: Any) -> set[str]:
    if isinstance(value, list):
        return set().union(*map(_references, value))
    if not isinstance(value, dict):
        return set()
    found = {str(value["Ref"])} if isinstance(value.get("Ref"), str) else set()
    if isinstance(value.get("Fn::GetAtt"), list):
        found.add(value["Fn::GetAtt"][0])
    return found.union(*map(_references, value.values()))


def test_the_runner_has_lambdas_longest_time_and_the_queue_hides_a_message_for_longer(packaged: dict[str, Any]) -> None:
    runner, queue = _properties(packaged, "RunTurn"), _properties(packaged, "Queue")
    source = runner["Events"]["RunTurnSqsEventSource"]["Properties"]
    assert runner["Timeout"] == 900
    assert queue["VisibilityTimeout"] > runner["Timeout"] + source.get("MaximumBatchingWindowInSeconds", 0)


def test_the_runner_takes_one_message_a_call_and_may_wake_itself(packaged: dict[str, Any]) -> None:
    runner = _properties(packaged, "RunTurn")
    event = runner["Events"]["RunTurnSqsEventSource"]["Properties"]
    assert event["Queue"] == {"Fn::Sub": "${Queue.Arn}"}
    assert event["BatchSize"] == 1
    assert event["ScalingConfig"]["MaximumConcurrency"] >= 2
    assert runner["RecursiveLoop"] == "Allow"
    assert "ReservedConcurrentExecutions" not in runner


def test_the_queue_is_fifo_in_high_throughput_mode_with_a_dead_letter_queue(packaged: dict[str, Any]) -> None:
    queue, dead = _properties(packaged, "Queue"), _properties(packaged, "DeadLetterQueue")
    for made in (queue, dead):
        assert made["FifoQueue"] is True
        assert made["ContentBasedDeduplication"] is True
    assert (queue["DeduplicationScope"], queue["FifoThroughputLimit"]) == ("messageGroup", "perMessageGroupId")
    assert queue["RedrivePolicy"]["deadLetterTargetArn"] == {"Fn::GetAtt": ["DeadLetterQueue", "Arn"]}
    assert queue["RedrivePolicy"]["maxReceiveCount"] >= 10


def test_the_stream_source_retries_a_bounded_number_of_times(packaged: dict[str, Any]) -> None:
    event = _properties(packaged, "FanOut")["Events"]["FanOutDynamodbEventSource"]["Properties"]
    assert event["Stream"] == {"Fn::GetAtt": ["Table", "StreamArn"]}
    assert event["BisectBatchOnFunctionError"] is True
    assert 0 < event["MaximumRetryAttempts"] <= 5
    assert 0 < event["MaximumRecordAgeInSeconds"] <= 60


def test_the_table_is_the_one_that_the_store_is_written_for(packaged: dict[str, Any]) -> None:
    table = _properties(packaged, "Table")
    assert {name: table[name] for name in ("KeySchema", "GlobalSecondaryIndexes")} == {
        name: keys.SCHEMA[name] for name in ("KeySchema", "GlobalSecondaryIndexes")
    }
    assert table["StreamSpecification"]["StreamViewType"] == "NEW_AND_OLD_IMAGES"
    assert table["TimeToLiveSpecification"] == {"AttributeName": "expires_at", "Enabled": True}


def _record(key: tuple[str, str], image: dict[str, Any], name: str = "INSERT") -> dict[str, Any]:
    own = {"pk": {"S": key[0]}, "sk": {"S": key[1]}}
    return {"eventName": name, "dynamodb": {"Keys": own, "NewImage": own | image}}


def test_the_fan_out_sees_event_pages_and_nothing_that_it_writes_itself() -> None:
    filters = source(resources.template()).filters
    row = pages.page_row(Page(first=1, last=2, at=0, text=b"[]", chain=b"c"), "write")
    page = {name: {"B": "eA=="} if "B" in value else value for name, value in row.items()}
    assert patterns.wanted(_record(keys.event_page(REF, 2), page), filters)
    assert not patterns.wanted(_record(keys.event_page(REF, 2), page, "REMOVE"), filters)
    assert not patterns.wanted(_record(keys.subscriber(REF, "c"), {"cursor": {"N": "1"}}), filters)
    assert not patterns.wanted(_record(keys.connection("c"), {"org": {"S": "o"}}), filters)
    assert not patterns.wanted(_record(keys.head(REF), {"rev": {"N": "2"}}, "MODIFY"), filters)
    assert patterns.wanted(_record(keys.head(REF), {"de": {"N": "1"}}, "MODIFY"), filters)


def test_what_the_gateway_answers_by_itself_is_a_problem_with_a_request_id() -> None:
    for name, response in OWN["RestAPI"]["Properties"]["GatewayResponses"].items():
        body = json.loads(response["ResponseTemplates"]["application/json"])
        assert {"type", "title", "status", "detail"} == body.keys(), name
        assert str(body["status"]) == response["StatusCode"], name
        assert response["ResponseParameters"]["Headers"]["Turnlog-Request-Id"] == "context.requestId", name


def test_the_api_answers_under_the_stage_live(packaged: dict[str, Any]) -> None:
    assert _properties(packaged, "RestAPI")["StageName"] == "live"
    assert _properties(packaged, "WebsocketAPIStage")["StageName"] == "live"


def test_the_bucket_is_private_and_encrypted(packaged: dict[str, Any]) -> None:
    bucket = _properties(packaged, "Bucket")
    assert set(bucket["PublicAccessBlockConfiguration"].values()) == {True}
    assert bucket["BucketEncryption"]["ServerSideEncryptionConfiguration"]


def test_every_function_has_its_own_policy_and_no_policy_allows_every_action() -> None:
    for function in CONFIG["lambda_functions"].values():
        policy = json.loads((ROOT / ".chalice" / function["iam_policy_file"]).read_text())
        for statement in policy["Statement"]:
            assert not [action for action in statement["Action"] if "*" in action], function
    assert CONFIG["autogen_policy"] is False
    assert CONFIG["stages"].keys() == {"local", "dev", "prod"}


def test_every_function_knows_its_own_time_and_memory(packaged: dict[str, Any]) -> None:
    functions = [name for name, made in packaged["Resources"].items() if made["Type"] == "AWS::Serverless::Function"]
    assert len(functions) == len(CONFIG["lambda_functions"]) == 8
    for name in functions:
        assert (_properties(packaged, name)["Timeout"], _properties(packaged, name)["MemorySize"]) != (60, 128), name


def test_every_function_has_the_settings_of_the_house(packaged: dict[str, Any]) -> None:
    settings = packaged["Globals"]["Function"]["Environment"]["Variables"]
    names = {"TABLE", "QUEUE_URL", "BUCKET", "SOCKET_ENDPOINT", "SOCKET_URL", "SECRET"}
    assert settings.keys() == {f"TURNLOG_{name}" for name in names}
    for stage, own in CONFIG["stages"].items():
        assert own["environment_variables"]["TURNLOG_STAGE"] == stage


def test_faults_of_the_road_raise_alarms() -> None:
    watched = {
        made["Properties"]["MetricName"] for made in OWN.values() if made.get("Type") == "AWS::CloudWatch::Alarm"
    }
    assert {"ApproximateNumberOfMessagesVisible", "ApproximateAgeOfOldestMessage", "Errors"} <= watched

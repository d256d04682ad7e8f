"""The shapes of Lambda events, held against what AWS documents."""

import json
from datetime import UTC, datetime

import pytest

from infra.local import events, patterns
from infra.local.events import Request
from infra.local.routes import Match, Routes

STREAM = "arn:aws:dynamodb:us-east-1:000000000000:table/turnlog/stream/2026-01-01T00:00:00.000"


def _request(**given: object) -> Request:
    fields = {"method": "POST", "raw_path": "/api/a%20b", "query": "", "headers": [], "client": "127.0.0.1"}
    return Request(**{**fields, **given})  # type: ignore[arg-type]


def test_a_text_body_stays_text_and_a_binary_media_type_becomes_base64() -> None:
    match, body = Match(resource="/api/{name}", parameters={"name": "a b"}), b"\x00\xff"
    text = events.http(_request(headers=[("content-type", "application/json")]), b"{}", match, ["image/*"], "r")
    binary = events.http(_request(headers=[("content-type", "image/png; q=1")]), body, match, ["image/*"], "r")
    assert (text["body"], text["isBase64Encoded"]) == ("{}", False)
    assert (binary["body"], binary["isBase64Encoded"]) == ("AP8=", True)
    assert text["pathParameters"] == {"name": "a b"}
    assert text["path"] == "/api/a%20b"
    assert text["requestContext"]["path"] == "/live/api/a%20b"


def test_an_absent_body_and_query_are_null_as_on_aws() -> None:
    event = events.http(_request(method="GET"), b"", Match(resource="/x", parameters={}), [], "r")
    names = ("body", "queryStringParameters", "multiValueQueryStringParameters", "pathParameters", "stageVariables")
    assert {name: event[name] for name in names} == dict.fromkeys(names)


def test_a_repeated_header_or_query_field_shows_its_last_value_and_all_values() -> None:
    request = _request(query="a=1&a=2&b=&c=%E2%82%AC+x", headers=[("x-a", "1"), ("x-a", "2")])
    event = events.http(request, b"", Match(resource="/x", parameters={}), [], "r")
    assert event["headers"]["x-a"] == "2"
    assert event["multiValueHeaders"]["x-a"] == ["1", "2"]
    assert event["queryStringParameters"] == {"a": "2", "b": "", "c": "€ x"}
    assert event["multiValueQueryStringParameters"]["a"] == ["1", "2"]


def test_binary_values_of_a_stream_record_are_base64_at_any_depth() -> None:
    read = {
        "eventID": "1",
        "eventName": "MODIFY",
        "dynamodb": {
            "ApproximateCreationDateTime": datetime(2026, 1, 1, tzinfo=UTC),
            "Keys": {"pk": {"S": "a"}, "sk": {"S": "b"}},
            "NewImage": {"m": {"M": {"l": {"L": [{"B": b"\x00"}, {"BS": [b"\x01", b"\x02"]}]}}}, "n": {"N": "1"}},
            "SequenceNumber": "5",
            "SizeBytes": 9,
            "StreamViewType": "NEW_AND_OLD_IMAGES",
        },
    }
    record = events.stream_record(read, STREAM)
    assert record["dynamodb"]["NewImage"]["m"] == {"M": {"l": {"L": [{"B": "AA=="}, {"BS": ["AQ==", "Ag=="]}]}}}
    assert record["dynamodb"]["ApproximateCreationDateTime"] == 1767225600.0
    assert (record["eventSourceARN"], record["eventSource"]) == (STREAM, "aws:dynamodb")
    assert json.loads(json.dumps(record)) == record


def test_a_removal_by_time_to_live_names_its_principal() -> None:
    change = {"ApproximateCreationDateTime": datetime(2026, 1, 1, tzinfo=UTC), "Keys": {}, "SequenceNumber": "1"}
    who = {"Type": "Service", "PrincipalId": "dynamodb.amazonaws.com"}
    read = {"eventID": "1", "eventName": "REMOVE", "dynamodb": change, "userIdentity": who}
    assert events.stream_record(read, STREAM)["userIdentity"] == {
        "type": "Service",
        "principalId": "dynamodb.amazonaws.com",
    }


def test_a_queue_event_carries_the_attributes_in_lambda_form() -> None:
    received = {
        "MessageId": "m",
        "ReceiptHandle": "h",
        "Body": "{}",
        "MD5OfBody": "d",
        "Attributes": {"MessageGroupId": "g", "ApproximateReceiveCount": "2"},
        "MessageAttributes": {"a": {"DataType": "Binary", "BinaryValue": b"\x00"}},
    }
    (record,) = events.queue(received, "arn:q")["Records"]
    assert record["attributes"]["MessageGroupId"] == "g"
    assert record["messageAttributes"]["a"]["binaryValue"] == "AA=="
    assert (record["eventSource"], record["eventSourceARN"]) == ("aws:sqs", "arn:q")


def test_connection_ids_are_eleven_bytes_in_base64() -> None:
    assert len({events.connection_id() for _ in range(100)}) == 100
    assert all(len(events.connection_id()) == 16 and events.connection_id().endswith("=") for _ in range(20))


@pytest.mark.parametrize(
    ("path", "resource", "parameters"),
    [
        ("/", "/", {}),
        ("/a", "/a", {}),
        ("/a/", "/a", {}),
        ("/a/mine", "/a/mine", {}),
        ("/a/other", "/a/{name}", {"name": "other"}),
        ("/a/mine/inner", "/a/{name}/inner", {"name": "mine"}),
        ("/a/x%2Fy%25", "/a/{name}", {"name": "x/y%"}),
        ("/a/%252F", "/a/{name}", {"name": "%2F"}),
    ],
)
def test_static_segments_win_and_parameters_are_decoded_once(
    path: str, resource: str, parameters: dict[str, str]
) -> None:
    routes = Routes(["/", "/a", "/a/{name}", "/a/mine", "/a/{name}/inner"])
    assert routes.find(path) == Match(resource=resource, parameters=parameters)


@pytest.mark.parametrize("path", ["/b", "/a//inner", "/a/x/y", "//a", "/A"])
def test_an_unknown_path_has_no_resource(path: str) -> None:
    assert Routes(["/", "/a", "/a/{name}", "/a/{name}/inner"]).find(path) is None


@pytest.mark.parametrize(
    ("pattern", "is_wanted"),
    [
        ({"eventName": ["INSERT", "MODIFY"]}, True),
        ({"eventName": ["REMOVE"]}, False),
        ({"dynamodb": {"Keys": {"sk": {"S": [{"prefix": "he"}]}}}}, True),
        ({"dynamodb": {"Keys": {"sk": {"S": [{"suffix": "xx"}, "head"]}}}}, True),
        ({"dynamodb": {"Keys": {"sk": {"S": [{"anything-but": ["head"]}]}}}}, False),
        ({"dynamodb": {"NewImage": {"kind": {"S": [{"exists": False}]}}}}, True),
        ({"userIdentity": {"type": [{"exists": True}]}}, False),
    ],
)
def test_filter_patterns_mean_what_they_mean_on_aws(pattern: dict[str, object], is_wanted: bool) -> None:
    record = {"eventName": "INSERT", "dynamodb": {"Keys": {"sk": {"S": "head"}}}}
    assert patterns.wanted(record, [pattern]) is is_wanted


def test_an_unknown_filter_rule_is_refused_rather_than_ignored() -> None:
    with pytest.raises(ValueError, match="numeric"):
        patterns.wanted({"a": 1}, [{"a": [{"numeric": [">", 0]}]}])

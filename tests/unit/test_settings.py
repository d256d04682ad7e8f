"""Settings: what is set is read, what is missing or wrong is one sentence with its name, local stays on loopback."""

import dataclasses
import re

import pytest

from chalicelib.settings import LOCAL_STAGES, SECRET_BYTES, Settings, WrongSetting, read

NEEDED = {
    "TURNLOG_STAGE": "live",
    "TURNLOG_TABLE": "threads",
    "TURNLOG_QUEUE_URL": "https://sqs.eu-west-1.amazonaws.com/1/wake.fifo",
    "TURNLOG_BUCKET": "blobs",
    "TURNLOG_SOCKET_ENDPOINT": "https://abc.execute-api.eu-west-1.amazonaws.com/live",
    "TURNLOG_SOCKET_URL": "wss://abc.execute-api.eu-west-1.amazonaws.com/live",
    "TURNLOG_SECRET": "s" * SECRET_BYTES,
}
LOCAL = {
    **NEEDED,
    "TURNLOG_STAGE": "local",
    "TURNLOG_SOCKET_ENDPOINT": "http://127.0.0.1:8000",
    "AWS_ENDPOINT_URL": "http://127.0.0.1:4566",
}


def fault(environment: dict[str, str]) -> str:
    """The sentence that refuses these settings; it is one, and it ends."""
    with pytest.raises(WrongSetting) as raised:
        read(environment)
    sentence = str(raised.value)
    assert re.fullmatch(r"[^\n]+\.", sentence)
    return sentence


def without(name: str, environment: dict[str, str]) -> dict[str, str]:
    return {key: value for key, value in environment.items() if key != name}


# ---------------------------------------------------------------- what is read


def test_what_is_needed_is_enough_and_the_rest_has_defaults() -> None:
    assert read(NEEDED) == Settings(
        stage="live",
        table="threads",
        queue_url=NEEDED["TURNLOG_QUEUE_URL"],
        bucket="blobs",
        socket_endpoint=NEEDED["TURNLOG_SOCKET_ENDPOINT"],
        socket_url=NEEDED["TURNLOG_SOCKET_URL"],
        secret=b"s" * SECRET_BYTES,
        region="us-east-1",
        endpoint=None,
        default_model="offline:demo",
        allowed_origins=(),
        openai_base_url=None,
        openai_api_key=None,
        anthropic_api_key=None,
    )


def test_what_may_be_set_is_read() -> None:
    settings = read(
        {
            **NEEDED,
            "AWS_REGION": "eu-west-1",
            "TURNLOG_MODEL": "bedrock:anthropic.claude:0",
            "TURNLOG_ALLOWED_ORIGINS": " https://a.example   https://b.example ",
            "OPENAI_BASE_URL": "http://127.0.0.1:9/v1",
            "OPENAI_API_KEY": "k1",
            "ANTHROPIC_API_KEY": "k2",
        }
    )
    assert (settings.region, settings.default_model) == ("eu-west-1", "bedrock:anthropic.claude:0")
    assert settings.allowed_origins == ("https://a.example", "https://b.example")
    assert settings.openai_base_url == "http://127.0.0.1:9/v1"
    assert (settings.openai_api_key, settings.anthropic_api_key) == ("k1", "k2")


def test_the_region_is_found_as_the_sdk_finds_it() -> None:
    both = {"AWS_REGION": "eu-west-1", "AWS_DEFAULT_REGION": "eu-north-1"}
    assert read({**NEEDED, **both}).region == "eu-west-1"
    assert read({**NEEDED, **both, "AWS_REGION": ""}).region == "eu-north-1"


def test_what_is_set_to_nothing_counts_as_not_set() -> None:
    names = ["AWS_ENDPOINT_URL", "TURNLOG_MODEL", "OPENAI_BASE_URL", "OPENAI_API_KEY", "ANTHROPIC_API_KEY"]
    assert read({**NEEDED, **dict.fromkeys(names, "")}) == read(NEEDED)


def test_blanks_around_a_needed_setting_are_no_part_of_it() -> None:
    assert read({**NEEDED, "TURNLOG_TABLE": " threads\n"}).table == "threads"


def test_the_environment_of_the_process_is_read_when_none_is_handed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**NEEDED, "TURNLOG_TABLE": "of the process"}.items():
        monkeypatch.setenv(name, value)
    assert read().table == "of the process"


def test_no_secret_shows_in_a_repr() -> None:
    secrets = {"TURNLOG_SECRET": "sesame" * 9, "OPENAI_API_KEY": "sk-open", "ANTHROPIC_API_KEY": "sk-anthro"}
    shown = repr(read({**NEEDED, **secrets}))
    assert "threads" in shown
    assert not [secret for secret in secrets.values() if secret in shown]


def test_settings_cannot_be_changed_afterwards() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        read(NEEDED).stage = "local"  # type: ignore[misc]


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize("name", NEEDED)
@pytest.mark.parametrize("value", [None, "", " \t"])
def test_each_needed_setting_that_is_missing_or_blank_is_named(name: str, value: str | None) -> None:
    environment = without(name, NEEDED) if value is None else {**NEEDED, name: value}
    assert fault(environment).startswith(f"{name} is not set;")


def test_a_secret_is_at_least_as_long_as_its_hash_in_bytes_and_never_shown() -> None:
    short = "ab" * (SECRET_BYTES // 2 - 1)
    sentence = fault({**NEEDED, "TURNLOG_SECRET": short})
    assert sentence == f"TURNLOG_SECRET must have at least {SECRET_BYTES} bytes."
    assert fault({**NEEDED, "TURNLOG_SECRET": short + "c" + " " * 9}) == sentence
    assert len(read({**NEEDED, "TURNLOG_SECRET": "é" * (SECRET_BYTES // 2)}).secret) == SECRET_BYTES


@pytest.mark.parametrize("stage", ["live", "local"])
@pytest.mark.parametrize("model", ["gpt-4o", "offline"])
def test_a_model_without_its_provider_is_refused_with_an_example(stage: str, model: str) -> None:
    sentence = fault({**LOCAL, "TURNLOG_STAGE": stage, "TURNLOG_MODEL": model})
    assert sentence.startswith("TURNLOG_MODEL must be `provider:model`, for example `")


# ---------------------------------------------------------------- local mode


@pytest.mark.parametrize("stage", ["local", "test"])
def test_the_local_stages_are_local_and_need_an_endpoint(stage: str) -> None:
    assert stage in LOCAL_STAGES
    assert read({**LOCAL, "TURNLOG_STAGE": stage}).is_local
    for unset in (without("AWS_ENDPOINT_URL", LOCAL), {**LOCAL, "AWS_ENDPOINT_URL": ""}):
        assert fault({**unset, "TURNLOG_STAGE": stage}).startswith("AWS_ENDPOINT_URL must be set in local mode")


@pytest.mark.parametrize("stage", ["live", "dev", "prod"])
def test_a_deployed_stage_may_speak_to_any_endpoint_or_to_none(stage: str) -> None:
    environment = {**NEEDED, "TURNLOG_STAGE": stage}
    assert not read(environment).is_local
    endpoint = "https://vpce-1.dynamodb.eu-west-1.vpce.amazonaws.com"
    assert read({**environment, "AWS_ENDPOINT_URL": endpoint}).endpoint == endpoint


@pytest.mark.parametrize("name", ["AWS_ENDPOINT_URL", "TURNLOG_SOCKET_ENDPOINT"])
@pytest.mark.parametrize("url", ["http://127.0.0.1:4566", "http://localhost", "http://LocalHost:1/x", "http://[::1]:9"])
def test_local_mode_speaks_to_loopback(name: str, url: str) -> None:
    assert url in (read({**LOCAL, name: url}).endpoint, read({**LOCAL, name: url}).socket_endpoint)


@pytest.mark.parametrize("stage", sorted(LOCAL_STAGES))
@pytest.mark.parametrize("name", ["AWS_ENDPOINT_URL", "TURNLOG_SOCKET_ENDPOINT"])
@pytest.mark.parametrize(
    "url",
    [
        "https://dynamodb.eu-west-1.amazonaws.com",
        "http://10.0.0.1:4566",
        "http://0.0.0.0:4566",
        "http://localhost.example.com",
        "http://127.0.0.1.example.com",
        "http://127.0.0.1@example.com",
        "http://localhost:4566@example.com",
        "http://example.com/#@127.0.0.1",
        "http://example.com?http://localhost",
        "127.0.0.1:4566",
        "localhost",
        "http://",
        "//",
    ],
)
def test_local_mode_refuses_every_other_address_and_names_it(stage: str, name: str, url: str) -> None:
    sentence = fault({**LOCAL, "TURNLOG_STAGE": stage, name: url})
    assert sentence == f"{name} is {url!r}, which is not a loopback address; local mode refuses it."

"""The only reader of the environment inside `chalicelib`: one frozen record, checked once, with a sentence for each
fault.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

VERSION = "0.1.0"
LOCAL_STAGES = frozenset({"local", "test"})
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
#: HMAC-SHA256 wants a key as long as its output (RFC 2104, section 3).
SECRET_BYTES = 32
#: Ours: each occurrence of a secret in a text is replaced, which would maim texts if it were a common word.
HIDDEN_CHARACTERS = 8


class WrongSetting(Exception):
    """A setting is missing or wrong; the text is one sentence that names it and says what it must be."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a deployment sets. Secrets never show in a repr."""

    stage: str
    table: str
    queue_url: str
    bucket: str
    socket_endpoint: str
    socket_url: str
    secret: bytes = field(repr=False)
    region: str
    endpoint: str | None
    default_model: str
    allowed_origins: tuple[str, ...]
    openai_base_url: str | None
    openai_api_key: str | None = field(repr=False)
    anthropic_api_key: str | None = field(repr=False)
    version: str = VERSION
    env: Mapping[str, str] = field(default_factory=dict)
    """For agents' code: what `TURNLOG_ENV_<NAME>` holds, by NAME."""
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    """For agents' code, never stored or shown: what `TURNLOG_SECRET_<NAME>` holds, by NAME."""

    @property
    def is_local(self) -> bool:
        """True where nothing may leave the machine and the scripted agent may play."""
        return self.stage in LOCAL_STAGES


def read(environment: Mapping[str, str] | None = None) -> Settings:
    """The settings of this process. Raises WrongSetting."""
    env = os.environ if environment is None else environment
    settings = Settings(
        stage=_needed(env, "TURNLOG_STAGE"),
        table=_needed(env, "TURNLOG_TABLE"),
        queue_url=_needed(env, "TURNLOG_QUEUE_URL"),
        bucket=_needed(env, "TURNLOG_BUCKET"),
        socket_endpoint=_needed(env, "TURNLOG_SOCKET_ENDPOINT"),
        socket_url=_needed(env, "TURNLOG_SOCKET_URL"),
        secret=os.fsencode(_needed(env, "TURNLOG_SECRET")),
        region=env.get("AWS_REGION") or env.get("AWS_DEFAULT_REGION") or "us-east-1",
        endpoint=env.get("AWS_ENDPOINT_URL") or None,
        default_model=env.get("TURNLOG_MODEL") or "offline:demo",
        allowed_origins=tuple(env.get("TURNLOG_ALLOWED_ORIGINS", "").split()),
        openai_base_url=env.get("OPENAI_BASE_URL") or None,
        openai_api_key=env.get("OPENAI_API_KEY") or None,
        anthropic_api_key=env.get("ANTHROPIC_API_KEY") or None,
        env=_behind(env, "TURNLOG_ENV_"),
        secrets=_behind(env, "TURNLOG_SECRET_"),
    )
    _check(settings)
    return settings


def _needed(env: Mapping[str, str], name: str) -> str:
    value = env.get(name, "").strip()
    if not value:
        raise WrongSetting(f"{name} is not set; see docs/operations.md for what it must be.")
    return value


def _behind(env: Mapping[str, str], prefix: str) -> dict[str, str]:
    """The variables whose names begin with a prefix, by the rest of their names."""
    return {name.removeprefix(prefix): value for name, value in env.items() if name.startswith(prefix) and value}


def _check(settings: Settings) -> None:
    if len(settings.secret) < SECRET_BYTES:
        raise WrongSetting(f"TURNLOG_SECRET must have at least {SECRET_BYTES} bytes.")
    if not all(part.strip() for part in settings.default_model.partition(":")):
        raise WrongSetting("TURNLOG_MODEL must be `provider:model`, for example `bedrock:anthropic.claude-sonnet-4-5`.")
    for name, value in settings.secrets.items():
        if len(value) < HIDDEN_CHARACTERS:
            raise WrongSetting(
                f"TURNLOG_SECRET_{name} must have at least {HIDDEN_CHARACTERS} characters: a shorter one cannot be "
                "told from other text, and so not be kept out of what is stored."
            )
    if not settings.is_local:
        return
    if settings.endpoint is None:
        raise WrongSetting("AWS_ENDPOINT_URL must be set in local mode, so that nothing reaches AWS by accident.")
    for name, url in (("AWS_ENDPOINT_URL", settings.endpoint), ("TURNLOG_SOCKET_ENDPOINT", settings.socket_endpoint)):
        if not _is_loopback(url):
            raise WrongSetting(f"{name} is {url!r}, which is not a loopback address; local mode refuses it.")


def _is_loopback(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and parts.hostname in _LOOPBACK
    except ValueError:  # an address that is none
        return False

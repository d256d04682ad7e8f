"""Where the data plane is: an address that the user gave, else an emulator of our own.

Resolved once, from AWS_ENDPOINT_URL or (through localstack-client) LOCALSTACK_HOST, and handed on as AWS_ENDPOINT_URL
alone: with only LOCALSTACK_HOST set, some SDKs would go to AWS. The local cloud never speaks to anything but loopback.
"""

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit

from localstack_client.config import get_service_endpoint

from infra.local.options import Refusal


def given(environ: Mapping[str, str]) -> str | None:
    """The user's endpoint, or None for an emulator of our own. Raises Refusal when it is not loopback."""
    address = environ.get("AWS_ENDPOINT_URL", "").strip()
    if not address and (host := environ.get("LOCALSTACK_HOST", "").strip()):
        address = get_service_endpoint("dynamodb", localstack_host=host) or ""
    if address and not is_loopback(address):
        raise Refusal(f"The endpoint {address} is not a loopback address; the local cloud never leaves this machine.")
    return address.rstrip("/") or None


def is_loopback(address: str) -> bool:
    """Whether a URL names this machine by a loopback address or as `localhost`; no name is looked up."""
    try:
        parts = urlsplit(address)
        host = parts.hostname or ""
        _ = parts.port
    except ValueError:
        return False
    if parts.scheme not in ("http", "https") or parts.username is not None:
        return False
    return host == "localhost" or _is_loopback_ip(host)


def _is_loopback_ip(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False

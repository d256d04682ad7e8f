"""The clients of the providers, built from settings. Each builder loads its own SDK and no other.

All of them have the SDK's own retries off: a call that is sent again is billed again, and only the engine knows whether
another try is wanted.
"""

from collections.abc import Callable, Mapping

from pydantic_ai.models import Model as ProviderModel

from chalicelib.engine.models.registry import ProviderSettings

# Longest wait for a connection, in seconds: a provider that does not even answer the phone is not worth the deadline.
CONNECT_SECONDS = 10


def bedrock(model: str, settings: ProviderSettings, timeout: int) -> ProviderModel:
    """Bedrock's Converse API; `timeout` is the longest silence in seconds. A long answer does not need a longer one."""
    import boto3
    from botocore.config import Config
    from pydantic_ai.models.bedrock import BedrockConverseModel
    from pydantic_ai.providers.bedrock import BedrockProvider

    config = Config(
        retries={"total_max_attempts": 1}, read_timeout=timeout, connect_timeout=min(CONNECT_SECONDS, timeout)
    )
    client = boto3.Session(region_name=settings.aws_region).client(
        "bedrock-runtime", endpoint_url=settings.bedrock_endpoint_url, config=config
    )
    return BedrockConverseModel(model, provider=BedrockProvider(bedrock_client=client))


def anthropic(model: str, settings: ProviderSettings, timeout: int) -> ProviderModel:
    """Anthropic's own API; `timeout` is the longest silence in seconds."""
    from anthropic import AsyncAnthropic
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.providers.anthropic import AnthropicProvider

    client = AsyncAnthropic(
        api_key=settings.anthropic_api_key, base_url=settings.anthropic_base_url, timeout=timeout, max_retries=0
    )
    return AnthropicModel(model, provider=AnthropicProvider(anthropic_client=client))


def openai(model: str, settings: ProviderSettings, timeout: int) -> ProviderModel:
    """Whatever speaks OpenAI's chat completions; `timeout` is the longest silence in seconds."""
    from openai import AsyncOpenAI
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    client = AsyncOpenAI(
        api_key=settings.openai_api_key, base_url=settings.openai_base_url, timeout=timeout, max_retries=0
    )
    return OpenAIChatModel(model, provider=OpenAIProvider(openai_client=client))


Builder = Callable[[str, ProviderSettings, int], ProviderModel]
BUILDERS: Mapping[str, Builder] = {"bedrock": bedrock, "anthropic": anthropic, "openai": openai}

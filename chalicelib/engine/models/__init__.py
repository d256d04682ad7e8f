"""The models behind the `Model` port: `offline:*`, `scripted:*`, and the providers (Bedrock, Anthropic, OpenAI).

`ModelRegistry` turns a name into a model. Each model knows a conversation and how to answer it; none knows runs, stores
or queues. Importing this room loads neither pydantic-ai nor any provider's SDK.
"""

from chalicelib.engine.models.registry import PROVIDERS, ModelRegistry, ProviderSettings
from chalicelib.engine.models.scripted import BadDeclaration, FakeTool, fake_tools

__all__ = ["PROVIDERS", "BadDeclaration", "FakeTool", "ModelRegistry", "ProviderSettings", "fake_tools"]

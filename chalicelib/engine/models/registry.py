"""Names of models, `provider:model`, and what stands behind them.

Importing this loads no provider SDK: pydantic-ai comes in with the first provider model that is asked for, and of the
SDKs only the one that this model needs. Settings are handed in; nothing here reads the environment.
"""

import importlib
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock

from chalicelib.domain.errors import ModelError
from chalicelib.engine.models.offline import Offline
from chalicelib.engine.models.scripted import Scripted
from chalicelib.ports import Model

PROVIDERS = ("bedrock", "anthropic", "openai")


@dataclass(frozen=True, kw_only=True)
class ProviderSettings:
    """Addresses and keys of the providers; None leaves a value to the SDK's own defaults.

    `bedrock_endpoint_url` None: botocore's rules decide, AWS_ENDPOINT_URL included.
    """

    aws_region: str | None = None
    bedrock_endpoint_url: str | None = None
    anthropic_base_url: str | None = None
    anthropic_api_key: str | None = field(default=None, repr=False)
    openai_base_url: str | None = None
    openai_api_key: str | None = field(default=None, repr=False)


@dataclass(frozen=True, kw_only=True)
class ModelRegistry:
    """Resolves names of models. `scripted` is allowed in local and test stages only.

    Provider models are built once and kept, since their clients hold connections. Safe on any thread.
    """

    scripted: bool = False
    settings: ProviderSettings = field(default_factory=ProviderSettings)
    _built: dict[str, Model] = field(default_factory=dict, repr=False)
    _lock: Lock = field(default_factory=Lock, repr=False)

    def resolve(self, name: str) -> Model:
        """The model of that name; a second call gives the same provider model.

        Raises ModelError (400, not retryable) for a name that is not `provider:model`, an unknown provider, or one
        whose extra is not installed.
        """
        provider, colon, model = name.partition(":")
        if provider == "scripted" and self.scripted:
            return Scripted()
        if not colon or not model or provider not in ("offline", *PROVIDERS):
            raise ModelError(400, f"unknown model `{name}`: {self._known()}", retryable=False)
        return Offline(name=model) if provider == "offline" else self._provider_model(provider, model)

    def _known(self) -> str:
        names = (*(("scripted",) if self.scripted else ()), "offline", *PROVIDERS)
        return f"names are `provider:model`, with the providers {', '.join(names)}"

    def _provider_model(self, provider: str, model: str) -> Model:
        name = f"{provider}:{model}"
        with self._lock:
            if name not in self._built:
                self._built[name] = _provider_builder(provider)(provider, model, self.settings)
            return self._built[name]


def _provider_builder(provider: str) -> Callable[[str, str, ProviderSettings], Model]:
    try:
        module = importlib.import_module("chalicelib.engine.models.providers")
    except ImportError as error:
        raise missing_extra(provider, error) from error
    build: Callable[[str, str, ProviderSettings], Model] = module.provider_model
    return build


def missing_extra(provider: str, error: ImportError) -> ModelError:
    """What is told when a provider's packages are not installed: the extra to install."""
    extra = f"pip install 'turnlog[{provider}]'"
    return ModelError(400, f"the `{provider}` extra is not installed ({error}): {extra}", retryable=False)

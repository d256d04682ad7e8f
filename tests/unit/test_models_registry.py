"""Names of models, and what is loaded for them."""

import subprocess
import sys

import pytest

from chalicelib.domain.errors import ModelError
from chalicelib.engine.models import ModelRegistry, ProviderSettings

LOADED = "import sys; {code}; print(sorted({{'pydantic_ai', 'boto3', 'openai', 'anthropic'}} & set(sys.modules)))"


def loaded_after(code: str) -> str:
    command = [sys.executable, "-c", LOADED.format(code=code)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_importing_the_models_and_using_the_offline_one_loads_no_provider_sdk() -> None:
    code = "from chalicelib.engine.models import ModelRegistry as R; R(scripted=True).resolve('offline:demo')"
    assert loaded_after(code) == "[]"


def test_a_provider_model_loads_pydantic_ai_and_no_other_providers_sdk() -> None:
    code = "from chalicelib.engine.models import ModelRegistry as R; R().resolve('openai:local')"
    assert loaded_after(code) == "['pydantic_ai']"


@pytest.mark.parametrize("name", ["", "offline", "offline:", "llama:x", ":x", "scripted:script", "scripted"])
def test_an_unknown_name_is_an_error_that_lists_the_known_ones(name: str) -> None:
    with pytest.raises(ModelError) as raised:
        ModelRegistry().resolve(name)
    assert (raised.value.status, raised.value.retryable) == (400, False)
    assert "offline, bedrock, anthropic, openai" in raised.value.detail


@pytest.mark.parametrize("name", ["scripted", "scripted:script"])
def test_the_scripted_model_is_there_only_where_it_is_allowed(name: str) -> None:
    assert ModelRegistry(scripted=True).resolve(name) is not None
    with pytest.raises(ModelError):
        ModelRegistry(scripted=False).resolve(name)


def test_a_provider_model_is_kept_so_that_its_connections_are() -> None:
    registry = ModelRegistry()
    assert registry.resolve("openai:local") is registry.resolve("openai:local")


def test_a_missing_extra_is_named() -> None:
    code = """
import sys
sys.modules["pydantic_ai"] = None
from chalicelib.domain.errors import ModelError
from chalicelib.engine.models import ModelRegistry
try:
    ModelRegistry().resolve("bedrock:some.model")
except ModelError as error:
    print(error.detail)
"""
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "the `bedrock` extra is not installed" in told
    assert "pip install 'turnlog[bedrock]'" in told


def test_keys_are_not_shown_where_settings_are() -> None:
    settings = ProviderSettings(openai_api_key="very-secret", anthropic_api_key="very-secret")
    assert "very-secret" not in repr(settings) + repr(ModelRegistry(settings=settings).resolve("openai:x"))

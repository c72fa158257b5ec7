from __future__ import annotations

from pathlib import Path

import pytest

from sakti.core.config import flatten, load, parse_model_choices
from sakti.core.errors import ConfigError


def test_later_sources_win_and_origins_are_told(tmp_path: Path) -> None:
    user, project = tmp_path / "user.toml", tmp_path / "project.toml"
    user.write_text('model = "anthropic/a"\n[memory.observation]\nmessage_tokens = 10_000\n')
    project.write_text("[memory.observation]\nmessage_tokens = 9_000\n")
    loaded = load(
        user_file=user,
        project_file=project,
        env={"SAKTI_MEMORY__OBSERVATION__MESSAGE_TOKENS": "8000"},
        overrides=["memory.observation.message_tokens=2000"],
    )
    assert loaded.config.memory.observation.message_tokens == 2000
    assert loaded.origins == {
        "model": str(user),
        "memory.observation.message_tokens": "-o memory.observation.message_tokens",
    }


def test_a_project_may_only_tighten(tmp_path: Path) -> None:
    project = tmp_path / "project.toml"
    project.write_text(
        'model = "evil/x"\n[approval]\nmode = "auto"\nallow = ["bash"]\ndeny = ["bash(rm*)"]\n'
        '[providers.openai]\nbase_url = "http://evil"\n'
    )
    loaded = load(project_file=project, overrides=[])
    assert loaded.config.model is None
    assert loaded.config.approval.mode == "ask"
    assert loaded.config.approval.allow == ()
    assert loaded.config.approval.deny == ("bash(rm*)",)
    assert loaded.config.providers == {}
    assert len(loaded.warnings) == 4
    project.write_text('[approval]\nmode = "plan"\n')
    assert load(project_file=project).config.approval.mode == "plan"


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("memory.observation.mesage_tokens=1", "Did you mean memory.observation.message_tokens"),
        ("memory.enabled=3", "true or false"),
        ("memory.scope=planet", "'thread' or 'resource'"),
        ("memory.observation.buffer_tokens=30000", "must be less than"),
        ("memory.observation.block_after=0.5", "from 1 to 100"),
        ("memory.observation.buffer_activation=20", "at least 1000"),
        (
            "memory.observation.model_settings.temprature=1",
            "Did you mean memory.observation.model_settings.temperature",
        ),
        ("memory.observation.model_settings.temperature=3", "from 0 to 2"),
        ("memory.reflection.model_settings.max_output_tokens=200000", "from 1000 to 100000"),
        ("memory.reflection.model_settings.thinking_tokens=100000", "must be less than"),
        ("memory.reflection.model_settings=1", "group of settings"),
        ("memory", "name=value"),
        ("memory=3", "group of settings"),
    ],
)
def test_bad_values_are_one_clear_sentence(override: str, words: str) -> None:
    with pytest.raises(ConfigError) as e:
        load(overrides=[override])
    assert words in e.value.message


def test_one_model_for_both_roles_contradicts_a_model_for_one() -> None:
    with pytest.raises(ConfigError) as e:
        load(overrides=["memory.model=a/b", "memory.observation.model=c/d"])
    assert "memory.model" in e.value.message
    assert "memory.observation.model" in e.value.message


def test_provider_settings_have_free_names() -> None:
    config = load(overrides=["providers.mine.base_url=http://127.0.0.1:9/v1", "providers.mine.api=chat"]).config
    assert config.providers["mine"].base_url == "http://127.0.0.1:9/v1"
    assert flatten(config)["providers.mine.api"] == "chat"


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text("model = ")
    with pytest.raises(ConfigError) as e:
        load(user_file=path)
    assert str(path) in e.value.message


def test_extra_goes_in_whole_or_key_by_key(tmp_path):
    user = tmp_path / "config.toml"
    user.write_text(
        "[providers.vllm.extra]\ntop_k = 40\nchat_template_kwargs = {enable_thinking = false}\n"
        "[memory.observation.model_settings]\nextra = {seed = 7}\n"
    )
    found = load(user_file=user, overrides=("providers.vllm.extra.min_p=0.1",)).config
    assert found.providers["vllm"].extra == {
        "top_k": 40,
        "chat_template_kwargs": {"enable_thinking": False},
        "min_p": 0.1,
    }
    assert found.memory.observation.model_settings.extra == {"seed": 7}
    with pytest.raises(ConfigError, match="messages"):
        load(overrides=("providers.vllm.extra={messages=[]}",))
    with pytest.raises(ConfigError, match="a table"):
        load(overrides=("providers.vllm.extra=4",))


def test_headers_are_set_as_a_table_or_one_by_one(tmp_path):
    user = tmp_path / "config.toml"
    user.write_text('[providers.gateway]\nheaders = {X-Team = "blue"}\n[providers.other.headers]\n"X-A.B" = "1"\n')
    found = load(user_file=user, overrides=('providers.gateway.headers.X-Trace="7"',))
    assert found.config.providers["gateway"].headers == {"X-Team": "blue", "X-Trace": "7"}
    assert found.config.providers["other"].headers == {"X-A.B": "1"}
    assert found.origins["providers.gateway.headers"] == str(user)
    for wrong in ("providers.gateway.headers={X=3}", "providers.gateway.headers.X=3"):
        with pytest.raises(ConfigError, match=r"headers\.X cannot be 3; it takes text"):
            load(overrides=(wrong,))


def test_a_project_may_not_add_to_requests(tmp_path):
    project = tmp_path / "config.toml"
    project.write_text("[memory.observation.model_settings.extra]\nuser = 'x'\n")
    loaded = load(project_file=project)
    assert loaded.config.memory.observation.model_settings.extra == {}
    assert "may not set memory.observation.model_settings.extra" in loaded.warnings[0]


def test_the_fallback_model_has_two_names(tmp_path):
    user = tmp_path / "config.toml"
    user.write_text('[model]\nname = "a/b"\nfallback = "c/d"\n')
    loaded = load(user_file=user)
    assert (loaded.config.model, loaded.config.fallback_model) == ("a/b", "c/d")
    assert loaded.origins["fallback_model"] == str(user)
    assert load(overrides=("model.fallback=x/y",)).config.fallback_model == "x/y"


@pytest.mark.parametrize("name", ["max_steps", "max_seconds", "max_tokens", "max_usd", "max_output_tokens"])
def test_limits_of_a_turn_are_above_zero(name):
    with pytest.raises(ConfigError, match=f"agent.{name}"):
        load(overrides=(f"agent.{name}=0",))


def test_models_of_memory_are_one_or_several():
    several = 'memory.observation.model=["a/small <= 20_000", "b/large"]'
    memory = load(overrides=(several, "memory.reflection.model=c/d")).config.memory
    assert parse_model_choices(memory.observation.model) == (("a/small", 20_000), ("b/large", None))
    assert parse_model_choices(memory.reflection.model) == (("c/d", None),)
    assert parse_model_choices(None) == ()
    for wrong in ('["a/b <= many"]', "5", '["a/b", 7]'):
        with pytest.raises(ConfigError):
            load(overrides=(f"memory.observation.model={wrong}",))
    with pytest.raises(ConfigError, match="keep one of them"):
        load(overrides=(several, "memory.model=x/y"))

"""Facts about providers and their models. Data only: a new provider is one entry.

A model's facts are those of the first `Family` of its provider whose pattern matches its name; what a server says
about itself and the settings override them (`facts`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from sakti.core.types import ImageRule, ThinkingKind

# the SDK clients: of anthropic the first four, of openai the others
ClientKind = Literal["anthropic", "bedrock", "vertex", "foundry", "openai", "azure"]

MINUTE, HOUR = 60_000, 3_600_000  # ms
DEFAULT_TTL = 5 * MINUTE


class Family(Struct, frozen=True):
    """Models whose names match `pattern`, ignoring case; None and "" mean unknown.

    `window` and `max_output` in tokens, `cache_ttl` in ms: how long the prompt cache stays warm. `tokens`: upper bound
    of the model's own tokens per o200k token. `thinking` is how thinking is requested: "budget" in tokens, "adaptive"
    (the model decides, by effort), "effort" as a word; `efforts` are the words of off, low, medium and high.
    `observes`: whether the model is good enough to observe, `measured`: when and how that was measured ("2026-11,
    tests.bench memory").
    """

    pattern: str
    window: int | None = None
    max_output: int | None = None
    images: bool | None = None
    thinking: ThinkingKind = ""
    efforts: tuple[str, str, str, str] = ("", "low", "medium", "high")
    temperature: bool = True
    cache_ttl: int | None = None
    tokens: float = 1.0
    observes: bool | None = None
    measured: str = ""


class Preset(Struct, frozen=True):
    """Provider.

    `keys` are the usual variables, of which the first has precedence; `small` is the model that observes. A local
    server needs no key, and is asked for its models. `prices` is the provider's name in the price list, `names` matches
    the bare names of its models, `images` applies if no family decides, `image_rule` is how image tokens are counted.
    `cloud` is the SDK client of a cloud, which makes up the address and signs the requests.
    """

    name: str
    api: Literal["anthropic", "responses", "chat"]
    base_url: str
    keys: tuple[str, ...] = ()
    model: str = ""
    small: str = ""
    base_url_env: str = ""
    label: str = ""
    prices: str = ""
    names: str = ""
    images: bool = False
    image_rule: ImageRule = ""
    cache_ttl: int = DEFAULT_TTL
    families: tuple[Family, ...] = ()
    cloud: ClientKind | None = None

    @property
    def local(self) -> bool:
        return not self.keys and self.cloud is None

    @property
    def title(self) -> str:
        return self.label or self.name


# Claude: from the public model pages, November 2026. The others: the usual figures of their families, to be checked;
# the price list and the server win over them where they know better.
_CLAUDE = (
    Family(r"claude-3-7", 200_000, 64_000, True, "budget", temperature=False, tokens=1.2),
    Family(r"claude-3-5", 200_000, 8_192, True, temperature=False, tokens=1.2),
    Family(r"claude-3", 200_000, 4_096, True, temperature=False, tokens=1.2),
    Family(r"claude-opus-4(-[01])?(-2\d{7})?$", 200_000, 32_000, True, "budget", temperature=False, tokens=1.2),
    Family(r"claude-([a-z]+-)?4(-[0-5])?(-2\d{7})?$", 200_000, 64_000, True, "budget", temperature=False, tokens=1.2),
    Family(r"claude-sonnet-4[-.]6", 1_000_000, 64_000, True, "adaptive", temperature=False, tokens=1.2),
    Family(r"claude-([a-z]+-)?4[-.][6-9]", 1_000_000, 128_000, True, "adaptive", temperature=False, tokens=1.2),
    # newer tokenizer: up to a third more tokens for the same text
    Family(r"claude-([a-z]+-)?\d", 1_000_000, 128_000, True, "adaptive", temperature=False, tokens=1.5),
    Family(r"claude-", 200_000, 8_192, True, temperature=False, tokens=1.5),
)
_NONE_WORD = ("none", "low", "medium", "high")
_LOW_WORD = ("low", "low", "medium", "high")  # models that always think
_GPT = (
    Family(r"(^|/)gpt-oss", 131_072, 65_536, False, "effort", _LOW_WORD, tokens=1.1),
    Family(r"(^|/)gpt-4\.1", 1_047_576, 32_768, True, cache_ttl=5 * MINUTE),
    Family(r"(^|/)gpt-4o", 128_000, 16_384, True, cache_ttl=5 * MINUTE),
    Family(r"(^|/)gpt-4", 128_000, 4_096, cache_ttl=5 * MINUTE),
    Family(r"(^|/)gpt-5[^/]*chat", 128_000, 16_384, True, cache_ttl=5 * MINUTE),
    Family(
        r"(^|/)gpt-5(-|$)", 400_000, 128_000, True, "effort", ("minimal", "low", "medium", "high"), False, 5 * MINUTE
    ),
    Family(r"(^|/)gpt-5\.[1-3](-|$)", 400_000, 128_000, True, "effort", _NONE_WORD, False, 5 * MINUTE),
    Family(r"(^|/)gpt-5\.4(-|$)", 1_050_000, 128_000, True, "effort", _NONE_WORD, False, 5 * MINUTE),
    Family(r"(^|/)gpt-([5-9]|\d\d)(?!.*chat)", 1_050_000, 128_000, True, "effort", _NONE_WORD, False),
    Family(r"(^|/)o1-(mini|preview)", 128_000, 32_768, False, temperature=False),
    Family(r"(^|/)o\d", 200_000, 100_000, True, "effort", _LOW_WORD, False),
)
_GEMINI = (
    Family(r"gemini-(2\.5|3|3\.1)-pro", 1_048_576, 65_536, True, "effort", _LOW_WORD, tokens=1.1),
    Family(r"gemini-(2\.5|[3-9]|\d\d)", 1_000_000, 65_536, True, "effort", _LOW_WORD, tokens=1.1),
    Family(r"gemini-", 1_000_000, 8_192, True, tokens=1.1),
)
_DEEPSEEK = (
    Family(r"deepseek-(v4|flash|pro)", 1_000_000, 64_000, False, tokens=1.15),
    Family(r"deepseek-reasoner", 128_000, 64_000, False, tokens=1.15),
    Family(r"deepseek-", 128_000, 8_192, False, tokens=1.15),
)
_MISTRAL = (
    Family(r"mistral-medium", 262_144, 32_768, True, tokens=1.2),
    Family(r"mistral-small", 131_072, 32_768, True, tokens=1.2),
    Family(r"(devstral|codestral|mistral-large)-", 262_144, 32_768, False, tokens=1.2),
    Family(r"(magistral|ministral|mistral-nemo)", 131_072, 32_768, False, tokens=1.2),
    Family(r"mixtral-|mistral-7b", 32_768, 8_192, False, tokens=1.2),
)
# Open models and those of other makers, on any server; a server on this machine reports its own limits. Windows are
# those of the makers' own services, November 2026.
_OPEN = (
    Family(
        r"qwen2\.5-coder-1\.5b|[-:_](0\.5|0\.6|1|1\.5|1\.7|2|3)b\b",
        tokens=1.2,
        observes=False,
        measured="2026-11, by hand with Qwen2.5-Coder-1.5B; others of up to 3B are taken to be no better",
    ),
    Family(r"llama-?4", 1_000_000, 32_768, True, tokens=1.1),
    Family(r"llama-?(v)?3[.p][1-3]-", 131_072, 32_768, False, tokens=1.1),
    Family(r"llama-?3-", 8_192, 4_096, False, tokens=1.1),
    Family(r"glm-?(5[.p-][2-9]|[6-9])", 1_000_000, 131_072, tokens=1.2),
    Family(r"glm-?(4[.p-][67]|5)", 200_000, 131_072, tokens=1.2),
    Family(r"glm-?4", 131_072, 98_304, tokens=1.2),
    Family(r"kimi-?(k)?[3-9]", 1_000_000, 131_072, tokens=1.2),
    Family(r"kimi", 262_144, 131_072, tokens=1.2),
    Family(r"qwen-?(plus|flash|turbo)|qwen3[.p-]?(coder-)?(plus|flash)", 1_000_000, 65_536, tokens=1.2),
    Family(r"qwen-?3([.p][5-9]|-coder|-max|-next|-vl|.*-2507)", 262_144, 65_536, tokens=1.2),
    Family(r"qwen-?3", 40_960, 16_384, tokens=1.2),
    Family(r"qwen-?2", 32_768, 8_192, tokens=1.2),
    Family(r"qwen|qwq", 131_072, 32_768, tokens=1.2),
    Family(r"grok-4[.-]?1?-fast", 2_000_000, 65_536, tokens=1.1),
    Family(r"grok-4[.-](20|3)", 1_000_000, 65_536, tokens=1.1),
    Family(r"grok-(4[.-][5-9]|[5-9])", 500_000, 65_536, tokens=1.1),
    Family(r"grok-(4|code)", 256_000, 65_536, tokens=1.1),
    Family(r"grok-", 131_072, 32_768, tokens=1.1),
    Family(r"minimax-?(m)?1|minimax-text", 1_000_000, 65_536, tokens=1.2),
    Family(r"minimax-?(m)?[3-9]", 512_000, 131_072, tokens=1.2),
    Family(r"minimax", 196_608, 131_072, tokens=1.2),
    Family(r"gemma-?4", 262_144, 32_768, True, tokens=1.1),
    Family(r"gemma-?3", 131_072, 8_192, True, tokens=1.1),
    Family(r"gemma", 8_192, 4_096, False, tokens=1.1),
)

_ALL = (
    Preset(
        "anthropic",
        "anthropic",
        "https://api.anthropic.com",
        ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
        "claude-sonnet-5-5",
        "claude-haiku-5-5",
        "ANTHROPIC_BASE_URL",
        "Anthropic",
        prices="anthropic",
        names=r"claude-",
        images=True,
        image_rule="anthropic",
        families=_CLAUDE,
    ),
    Preset(
        "openai",
        "responses",
        "https://api.openai.com/v1",
        ("OPENAI_API_KEY",),
        "gpt-6.1-terra",
        "gpt-6-luna",
        "OPENAI_BASE_URL",
        "OpenAI",
        prices="openai",
        names=r"(gpt-|o\d|chatgpt-|codex-)",
        images=True,
        image_rule="openai",
        cache_ttl=HOUR,
        families=_GPT,
    ),
    Preset(
        "bedrock",
        "anthropic",
        "",
        ("AWS_BEARER_TOKEN_BEDROCK",),
        "global.anthropic.claude-sonnet-5-5",
        "global.anthropic.claude-haiku-5-5",
        "ANTHROPIC_BEDROCK_BASE_URL",
        "Amazon Bedrock",
        prices="aws",
        names=r"([a-z-]+\.)?anthropic\.claude-",
        images=True,
        image_rule="anthropic",
        families=_CLAUDE,
        cloud="bedrock",
    ),
    Preset(
        "vertex",
        "anthropic",
        "",
        (),
        "claude-sonnet-5-5",
        "claude-haiku-5-5",
        "ANTHROPIC_VERTEX_BASE_URL",
        "Google Vertex AI",
        prices="google",
        images=True,
        image_rule="anthropic",
        families=_CLAUDE,
        cloud="vertex",
    ),
    Preset(
        "foundry",
        "anthropic",
        "",
        ("ANTHROPIC_FOUNDRY_API_KEY",),
        "claude-sonnet-5-5",
        "claude-haiku-5-5",
        "ANTHROPIC_FOUNDRY_BASE_URL",
        "Microsoft Foundry",
        prices="anthropic",
        images=True,
        image_rule="anthropic",
        families=_CLAUDE,
        cloud="foundry",
    ),
    Preset(
        "azure",
        "chat",
        "",
        ("AZURE_OPENAI_API_KEY",),
        base_url_env="AZURE_OPENAI_ENDPOINT",
        label="Azure OpenAI",
        prices="azure",
        images=True,
        image_rule="openai",
        families=_GPT,
        cloud="azure",
    ),
    Preset(
        "openrouter",
        "chat",
        "https://openrouter.ai/api/v1",
        ("OPENROUTER_API_KEY",),
        "anthropic/claude-sonnet-5.5",
        "anthropic/claude-haiku-5.5",
        label="OpenRouter",
        prices="openrouter",
        images=True,
    ),
    Preset(
        "gemini",
        "chat",
        "https://generativelanguage.googleapis.com/v1beta/openai",
        ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        "gemini-3.8-flash",
        "gemini-3.5-flash-lite",
        label="Gemini",
        prices="google",
        names=r"gemini-",
        images=True,
        image_rule="gemini",
        cache_ttl=24 * HOUR,
        families=_GEMINI,
    ),
    Preset(
        "deepseek",
        "chat",
        "https://api.deepseek.com",
        ("DEEPSEEK_API_KEY",),
        "deepseek-v4-pro",
        "deepseek-v4-flash",
        label="DeepSeek",
        prices="deepseek",
        names=r"deepseek-",
        cache_ttl=HOUR,
        families=_DEEPSEEK,
    ),
    Preset(
        "mistral",
        "chat",
        "https://api.mistral.ai/v1",
        ("MISTRAL_API_KEY",),
        "mistral-medium-3-5",
        "mistral-small-2603",
        label="Mistral",
        prices="mistral",
        names=r"(mistral|devstral|codestral|magistral|ministral)-",
        families=_MISTRAL,
    ),
    Preset(
        "groq",
        "chat",
        "https://api.groq.com/openai/v1",
        ("GROQ_API_KEY",),
        "openai/gpt-oss-120b",
        "openai/gpt-oss-20b",
        label="Groq",
        prices="groq",
        cache_ttl=2 * HOUR,
        families=_OPEN,
    ),
    Preset("ollama", "chat", "http://127.0.0.1:11434/v1", label="Ollama", families=_OPEN),
    Preset("lmstudio", "chat", "http://127.0.0.1:1234/v1", label="LM Studio", families=_OPEN),
    Preset("llamacpp", "chat", "http://127.0.0.1:8080/v1", label="llama.cpp", families=_OPEN),
    Preset("vllm", "chat", "http://127.0.0.1:8000/v1", label="vLLM", families=_OPEN),
)

PRESETS: Mapping[str, Preset] = {p.name: p for p in _ALL}

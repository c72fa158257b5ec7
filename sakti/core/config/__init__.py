"""Define the settings (`fields`, `providers`) and read them from all sources (`load`)."""

from sakti.core.config.check import check, model_choices
from sakti.core.config.fields import (
    APPROVAL_MODES,
    MAX_OUTPUT_TOKENS,
    SESSION_MODES,
    AgentSettings,
    ApprovalMode,
    ApprovalSettings,
    Config,
    MemorySettings,
    ModelSettings,
    ObservationSettings,
    ReflectionSettings,
    SandboxSettings,
    SessionMode,
    StoreSettings,
    SubagentSettings,
    UiSettings,
    WorkingMemorySettings,
    refuse_mode,
)
from sakti.core.config.hooks import HookSettings
from sakti.core.config.load import (
    Loaded,
    flat,
    load,
    masked_value,
    meaning,
    names,
    project_may_set,
    replace_setting,
)
from sakti.core.config.meaning import Meaning
from sakti.core.config.providers import ProviderSettings
from sakti.core.config.takes import choices, takes

__all__ = [
    "APPROVAL_MODES",
    "MAX_OUTPUT_TOKENS",
    "SESSION_MODES",
    "AgentSettings",
    "ApprovalMode",
    "ApprovalSettings",
    "Config",
    "HookSettings",
    "Loaded",
    "Meaning",
    "MemorySettings",
    "ModelSettings",
    "ObservationSettings",
    "ProviderSettings",
    "ReflectionSettings",
    "SandboxSettings",
    "SessionMode",
    "StoreSettings",
    "SubagentSettings",
    "UiSettings",
    "WorkingMemorySettings",
    "check",
    "choices",
    "flat",
    "load",
    "masked_value",
    "meaning",
    "model_choices",
    "names",
    "project_may_set",
    "refuse_mode",
    "replace_setting",
    "takes",
]

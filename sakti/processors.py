"""Processors: what a script or a package puts between the user, the model and the store."""

from msgspec.structs import replace

from sakti.agent.processors.base import (
    Chain,
    Parallel,
    Processor,
    StepInput,
    StepOutput,
    TurnInput,
    TurnResult,
    When,
    abort,
)
from sakti.agent.processors.builtin import (
    MessageHistory,
    PromptInjectionGuard,
    SecretRedactor,
    TokenLimiter,
    ToolCallFilter,
    ToolSearch,
    UnicodeNormalizer,
)

__all__ = [
    "Chain",
    "MessageHistory",
    "Parallel",
    "Processor",
    "PromptInjectionGuard",
    "SecretRedactor",
    "StepInput",
    "StepOutput",
    "TokenLimiter",
    "ToolCallFilter",
    "ToolSearch",
    "TurnInput",
    "TurnResult",
    "UnicodeNormalizer",
    "When",
    "abort",
    "replace",
]

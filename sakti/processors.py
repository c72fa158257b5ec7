"""Processors: what a script or a package puts between the user, the model and the store."""

from msgspec.structs import replace

from sakti.agent.processors.base import Processor, StepInput, StepOutput, TurnInput, TurnResult, abort
from sakti.agent.processors.builtin import MessageHistory, TokenLimiter, ToolCallFilter, ToolSearch
from sakti.agent.processors.compose import Chain, Parallel, When
from sakti.agent.processors.registry import PromptInjectionGuard, SecretRedactor, UnicodeNormalizer

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

"""Errors shown to users: a title, a sentence that says what to do, and whether a retry may help."""

from __future__ import annotations


class SaktiError(Exception):
    """Base of all errors that sakti raises deliberately.

    `title` names what failed, `message` says what to do, `code` is stable for programs,
    `retryable`: the same request may succeed later.
    """

    title = "Something went wrong"
    code = "error"
    retryable = False

    def __init__(
        self, message: str, *, title: str | None = None, code: str | None = None, retryable: bool | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.title = title or type(self).title
        self.code = code or type(self).code
        self.retryable = type(self).retryable if retryable is None else retryable


class ConfigError(SaktiError):
    title = "Configuration"
    code = "config"


# Codes of a `StoreError`: reasons for a failed write. A retry may help for the first two and after a disk error.
NOT_SAVED = ("busy", "full", "io", "damaged", "read_only")
BLOCKED = "hook"  # code of an error: a hook blocked a prompt
RAN = "ran"  # code of an error after which the user's own command still ran


class StoreError(SaktiError):
    title = "Database"
    code = "store"


class ProviderError(SaktiError):
    """Failed model call.

    `code` is one of: authentication, permission, invalid_request, context_too_long, output_too_long, not_found,
    rate_limit, overloaded, server, connection, unreachable, unknown_host, certificate, proxy, not_a_model, unreadable,
    timeout, no_events, line_too_long, stream_cut, empty, endless, refused.

    `server_text` is the server's own text, type and code, unmasked: for decisions only, never shown or stored.
    `refused_node` is the part of the request's body named by the server.
    `retry_after` is the provider's Retry-After, in seconds. Limits in tokens, if the provider reported them:
    `output_limit` for this answer, `max_output` for any answer of the model, `window` for its context window.
    """

    title = "No answer"
    code = "provider"

    def __init__(
        self,
        message: str,
        *,
        title: str | None = None,
        code: str | None = None,
        retryable: bool | None = None,
        retry_after: float | None = None,
        status: int | None = None,
    ) -> None:
        super().__init__(message, title=title, code=code, retryable=retryable)
        self.retry_after = retry_after
        self.output_limit: int | None = None
        self.max_output: int | None = None
        self.window: int | None = None
        self.server_text = ""
        self.refused_node: dict[str, object] | None = None
        self.status = status


class HttpError(SaktiError):
    """Failed or refused request.

    `code` is one of: address, redirect, size, encoding, timeout, certificate, connection.
    """

    title = "Web"
    code = "connection"


class NoModelError(SaktiError):
    title = "No model"
    code = "no_model"


class MemoryFailure(SaktiError):
    title = "Memory"
    code = "memory"


class TaskError(SaktiError):
    title = "Tasks"
    code = "task"


class ToolError(SaktiError):
    """Error that a tool reports to the model; it never ends the turn."""

    title = "Tool"
    code = "tool"

"""Helpers for commands: settings, workspace, output, and errors as one sentence and an exit code."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Awaitable, Callable, Generator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, NoReturn, ParamSpec, TypeVar

from msgspec.structs import replace

from sakti.actions import values
from sakti.actions.values import Refused
from sakti.core import resources
from sakti.core.config import LoadedConfig, load, refuse_mode
from sakti.core.errors import NOT_SAVED, SaktiError, StoreError
from sakti.core.lazy import lazy_imports
from sakti.core.streams import print_document
from sakti.core.text import encode_json_line, quote, sanitize_text

with lazy_imports:
    from sakti.agent import repository
    from sakti.agent import settings as project_settings
    from sakti.agent.project import trust
    from sakti.agent.sandbox import boundary
    from sakti.agent.session import session as sessions
    from sakti.cli import loop
    from sakti.core import terminal
    from sakti.store import database as store_database
    from sakti.store import opening, secrets

if TYPE_CHECKING:
    from sakti.agent.session.session import Options
    from sakti.store.connection import Connection
    from sakti.store.database import Store

WIDEST = 100  # columns of a document; longer lines are hard to read

P = ParamSpec("P")
T = TypeVar("T")

OK, FAILED, USAGE, LIMIT, REFUSED, NO_MODEL, INTERRUPTED = 0, 1, 2, 3, 4, 5, 130


def fail(message: str, code: int = FAILED) -> NoReturn:
    """Print one sentence on standard error and raise SystemExit."""
    print(f"sakti: {sanitize_text(message)}", file=sys.stderr)
    raise SystemExit(code)


def say(text: str) -> None:
    """Print text for people, with control characters made visible."""
    print(sanitize_text(text))


def say_markdown(text: str) -> None:
    """Print a document: formatted on a terminal, its source otherwise."""
    if not sys.stdout.isatty() or os.environ.get("TERM") == "dumb":
        say(text)
        return
    from rich import console, markdown, theme

    plain_code = theme.Theme({"markdown.code": "cyan"})  # without a background, for light terminals
    screen = console.Console(theme=plain_code)
    screen.print(markdown.Markdown(sanitize_text(text), code_theme="ansi_dark"), width=min(screen.width, WIDEST))


_COLOURS = {"✓": "32", "!": "33", "✗": "31"}  # SGR: green, yellow, red


def say_finding(text: str) -> None:
    """Print a line that begins with ✓, ! or ✗, with that symbol coloured if the terminal has colours."""
    sign, _, rest = text.partition(" ")
    if (
        sign not in _COLOURS
        or not sys.stdout.isatty()
        or os.environ.get("NO_COLOR")
        or os.environ.get("TERM") == "dumb"
    ):
        say(text)
    else:
        print(f"\x1b[{_COLOURS[sign]}m{sign}\x1b[0m {sanitize_text(rest)}")


def say_document(text: str) -> None:
    """Print a file as `say` does, but always in UTF-8."""
    print_document(sanitize_text(text))


def say_json(value: Any) -> None:
    print_document(encode_json_line(value))


@contextlib.contextmanager
def plain_errors() -> Generator[None]:
    """Exit with the sentence of an expected error instead of a traceback."""
    try:
        yield
    except SaktiError as e:
        code = {"config": USAGE, "usage": USAGE, "no_model": NO_MODEL}.get(e.code, FAILED)
        fail(f"{e.title}: {e.message}" if e.title else e.message, code)
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None


def find_workspace() -> Path:
    return repository.find_root(Path.cwd())


def load_settings(overrides: Sequence[str] = ()) -> LoadedConfig:
    """Merge all settings, including those of a trusted project. Raises ConfigError."""
    review = trust.review(find_workspace())
    loaded = project_settings.load_settings(review.project, use=review.holds, overrides=overrides)
    left_out = tuple(w for w in (review.project.problem, review.left_out) if w)
    return replace(loaded, warnings=(*loaded.warnings, *left_out))


def load_own_settings() -> LoadedConfig:
    """Load the user's own settings, for what a project may not set; raises `ConfigError`."""
    return load(user_file=resources.config_home() / "config.toml", env=os.environ)


def make_options(
    *,
    overrides: Sequence[str] = (),
    model: str | None = None,
    approval: str | None = None,
    mode: str | None = None,
    no_save: bool = False,
    trusted: bool | None = None,
    added: Sequence[str] = (),
    **thread: Any,
) -> Options:
    """Make a session's options from the command line's; raises `ConfigError`, and `Refused` for a folder.

    `thread`: resume, fork or continue_last. `trusted`: whether the project is trusted in this run; None for a
    chat, which asks after the first paint.
    """
    if mode is not None and (reason := refuse_mode(mode)):
        raise Refused(f"--mode: {reason}", code=values.USAGE)
    more = [*overrides]
    full = approval == "full"  # only an option of the command line, not a setting
    more += [f'approval.mode="{approval}"'] if approval and not full else []
    more += [f'mode="{mode}"'] if mode else []
    more += ["memory.read_only=true"] if no_save else []
    folders = tuple(dict.fromkeys(map(_resolve_added, added)))
    chosen: dict[str, Any] = {"overrides": more, "model_flag": model, "full": full, "added": folders, **thread}
    if trusted is None:
        return sessions.Options.load_without_project(**chosen)
    return sessions.Options.load(trusted=trusted, interactive=False, **chosen)


def _resolve_added(name: str) -> Path:
    """Resolve the folder that --add-dir names. Raises Refused if it is missing or too wide."""
    folder = Path(os.path.realpath(Path(name).expanduser()))
    if not folder.is_dir():
        raise Refused(f"--add-dir takes a folder; {quote(name)} is not one.", code=values.USAGE)
    if Path.home().resolve().is_relative_to(folder) or boundary.explain_impossible(folder):
        raise Refused(f"{folder} is too wide for --add-dir: name the folder that is needed.", code=values.USAGE)
    sakti_folders = (resources.data_home(), resources.config_home(), resources.state_home(), trust.get_trust_folder())
    if any(folder.is_relative_to(o.resolve()) for o in sakti_folders):
        raise Refused(f"{folder} holds sakti's own data, which no tool may touch.", code=values.USAGE)
    return folder


def find_database() -> Path:
    return Path(load_own_settings().config.store.path or resources.data_home() / "sakti.db").expanduser()


def query_store(fn: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Run `fn(db, …)`, which only reads, on the user's database; its errors propagate.

    No event loop is needed if the database exists in the current version.
    """
    try:
        return opening.read_once(find_database(), fn, *args, **kwargs)
    except opening.NotReady:
        return run_in_store(lambda store: store.read(fn, *args, **kwargs))


def run_in_store(work: Callable[[Store], Awaitable[T]]) -> T:
    """Open the user's database for `work` and run it; its errors propagate."""

    async def run() -> T:
        chosen = load_own_settings().config.store
        waits = terminal.WaitNotice(chosen.wait)
        store = await store_database.Store.open(
            find_database(), synchronous=chosen.synchronous, wait=chosen.wait, on_wait=waits.on_wait
        )
        for notice in store.notices:
            print(f"sakti: {sanitize_text(notice)}", file=sys.stderr)
        try:
            return await work(store)
        except StoreError as e:
            raise _add_outcome(e, store.written) from e
        finally:
            await store.close()

    return loop.run(run())


def _add_outcome(error: StoreError, written: int) -> StoreError:
    """Add a sentence to `error` that says whether a command's changes were saved (`written`)."""
    if error.code not in NOT_SAVED or not error.message.startswith("Not saved"):
        return error
    outcome = "Earlier changes are kept." if written else "Nothing was changed."
    again = " Run it again." if error.retryable else ""
    return StoreError(f"{error.message} {outcome}{again}", code=error.code, retryable=error.retryable)


def log_to_file(*, debug: bool = False) -> Path:
    """Write the log to a private file; returns the file."""
    import logging

    path = resources.state_home() / "sakti.log"
    with contextlib.suppress(OSError):  # without a home folder, nothing is logged
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if path.exists() and path.stat().st_size > 5_000_000:
            path.replace(path.with_suffix(".log.1"))
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
        handler = logging.FileHandler(path)
        lines = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
        handler.format = lambda record: secrets.mask_secrets(lines.format(record))  # also in tracebacks
        logging.basicConfig(handlers=[handler], level=logging.DEBUG if debug else logging.WARNING)
        for noisy in ("httpx2", "httpcore2", "markdown_it", "asyncio"):
            logging.getLogger(noisy).setLevel(logging.WARNING)
    return path

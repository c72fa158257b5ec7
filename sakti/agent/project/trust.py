"""Trust in a workspace: its files have an effect only once the user has seen and allowed them.

Trust is stored in the user's state folder, one file for each workspace, under its resolved path, with the hash of each
file that is trusted with its content; a change of one asks again. Instructions, and skills and commands that run
nothing, are trusted by path alone if they were there: they change with the work and can only say something. A new one
asks, as a command may have written it. sakti runs no program that a repository's git configuration names.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import tempfile
from collections.abc import Container, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

from msgspec import Struct
from msgspec.structs import replace

from sakti.agent.project.files import (
    CONFIG,
    Kind,
    ProjectFile,
    ProjectFiles,
    discover,
    find_kind,
    is_trusted_by_path,
    read_as,
)
from sakti.core import resources
from sakti.core.config.reading import read_bytes
from sakti.core.errors import ConfigError
from sakti.core.text import to_one_line
from sakti.store import files as store_files

NAMED = 4  # files in a sentence
State: TypeAlias = Literal["nothing", "trusted", "new", "changed"]


class TrustedFile(Struct, frozen=True):
    """A file as it was trusted; `text` shows its changes. Both are empty if its path is trusted."""

    sha256: str
    text: str


_NOTHING = TrustedFile("", "")


class TrustedFileChange(Struct, frozen=True):
    """A file that is not as it was trusted, with its texts then and now."""

    name: str
    kind: Kind
    how: Literal["new", "changed", "removed"]
    before: str
    after: str

    @property
    def diff(self) -> str:
        """Return the change as a unified diff."""
        before, after = self.before.splitlines(), self.after.splitlines()
        old, new = (f"a/{self.name}" if before else "/dev/null"), (f"b/{self.name}" if after else "/dev/null")
        return "\n".join(difflib.unified_diff(before, after, old, new, lineterm=""))


class TrustReview(Struct, frozen=True):
    """The files of a workspace compared with those that were trusted; `changes` are sorted by name."""

    project: ProjectFiles
    state: State = "nothing"
    changes: tuple[TrustedFileChange, ...] = ()

    @property
    def asks(self) -> bool:
        """Return whether the user has to be asked before any of the files has an effect."""
        return self.state in ("new", "changed")

    @property
    def adds_only_texts(self) -> bool:
        """Return whether only texts for the model are new: the rest is as it was trusted."""
        texts = {f.name for f in self.project.files if f.is_text}
        return self.state == "changed" and all(c.how == "new" and c.name in texts for c in self.changes)

    @property
    def holds(self) -> bool:
        """Return whether the trusted files apply without a question."""
        return not self.asks or self.adds_only_texts

    @property
    def trusted_part(self) -> ProjectFiles:
        """Return the files without the new texts; none if others changed."""
        names = {change.name for change in self.changes} if self.holds else {f.name for f in self.project.files}
        return self.without(names).project

    def without(self, names: Container[str]) -> TrustReview:
        """Return the review without some files."""
        files = tuple(f for f in self.project.files if f.name not in names)
        return replace(self, project=replace(self.project, files=files))

    def trusts(self, name: str) -> bool:
        """Return whether a file is as it was trusted."""
        return all(name != change.name for change in self.changes)

    @property
    def left_out(self) -> str:
        """Sentence that names the files without an effect; empty if there are none."""
        if not self.asks:
            return ""
        added = {change.name for change in self.changes}
        files = [f for f in self.project.files if not self.adds_only_texts or f.name in added]
        names = ", ".join(to_one_line(f.name, 80) for f in files[:NAMED])
        if len(files) > NAMED:
            names += f" and {len(files) - NAMED} more"
        why = "changed since it was trusted" if self.state == "changed" else "not trusted"
        why = "new since the workspace was trusted" if self.adds_only_texts else why
        return f"{names}: {why}, so left out. `sakti trust` shows and trusts it."

    @property
    def diff(self) -> str:
        """Return all changes as unified diffs."""
        return "\n".join(change.diff for change in self.changes)


def review(workspace: Path) -> TrustReview:
    """Read the files of a workspace and compare them with the trusted ones. Raises nothing."""
    project = discover(workspace)
    record = _load(project.workspace) if project.files else None
    return compare(project, record.files if record is not None else None)


def review_new(workspace: Path, seen: Container[str], moved: Iterable[tuple[str, str]] = ()) -> TrustReview:
    """Review only files that are new since the workspace was trusted and whose names are not in `seen`.

    `moved` are old and new names of files that were set aside: its files are reviewed under their old names.
    """
    current = review(workspace)
    new = {c.name for c in current.changes if c.how == "new" and c.name not in seen}
    files = [f for f in current.project.files if f.name in new]
    for name, aside in moved:
        files += [f for f in read_as(current.project.workspace, name, aside) if f.name not in new]
    changes = tuple(TrustedFileChange(f.name, f.kind, "new", "", f.text) for f in files)
    project = replace(current.project, files=tuple(files), problem="")
    return TrustReview(project, "changed" if changes else "nothing", changes)


def add(workspace: Path, names: Container[str]) -> tuple[ProjectFile, ...]:
    """Trust further files as they are now; returns them. Raises `ConfigError`."""
    current = review(workspace)
    others = {c.name for c in current.changes if c.name not in names}
    save(current.without(others))
    return tuple(f for f in current.project.files if f.name in names)


def review_settings(path: Path) -> TrustReview:
    """Review the workspace whose settings `path` is; one without files if it is a file of another name."""
    workspace = path.parent.parent
    return review(workspace) if path == workspace / CONFIG else TrustReview(ProjectFiles(workspace))


def compare(project: ProjectFiles, record: Mapping[str, TrustedFile] | None) -> TrustReview:
    """Compare files with those that were trusted; None: the workspace was never trusted."""
    if not project.files:
        return TrustReview(project)
    if record is None:
        new = (TrustedFileChange(f.name, f.kind, "new", "", f.text) for f in project.files)
        return TrustReview(project, "new", tuple(sorted(new, key=lambda change: change.name)))
    changes = tuple(_iter_changes(project, record))
    return TrustReview(project, "changed" if changes else "trusted", changes)


def _iter_changes(project: ProjectFiles, record: Mapping[str, TrustedFile]) -> Iterator[TrustedFileChange]:
    files = {f.name: f for f in project.files}
    for name in sorted({*files, *record}):
        file, trusted = files.get(name), record.get(name)
        if trusted is None:
            if file is not None:
                yield TrustedFileChange(name, file.kind, "new", _NOTHING.text, file.text)
            continue
        now = file.sha256 if file is not None and not file.is_text else ""
        before = trusted if now or not is_trusted_by_path(name) else _NOTHING
        if now != before.sha256:
            yield _compare_versions(name, file, before)


def _compare_versions(name: str, file: ProjectFile | None, before: TrustedFile) -> TrustedFileChange:
    if file is None:
        return TrustedFileChange(name, find_kind(name, "script"), "removed", before.text, "")
    return TrustedFileChange(name, file.kind, "changed", before.text, file.text)


# --- the record ---------------------------------------------------------------------------------------------------


def get_trust_folder() -> Path:
    """Return the folder in which trust is stored."""
    return resources.state_home() / "trust"


def _get_trust_file(workspace: Path) -> Path:
    return get_trust_folder() / f"{hashlib.sha256(os.fsencode(workspace)).hexdigest()[:32]}.json"


class TrustRecord(Struct, frozen=True):
    """Trusted files of a workspace by name; `answers` tell what MCP servers of its files may have."""

    workspace: Path
    files: dict[str, TrustedFile]
    answers: dict[str, bool]


def _load(workspace: Path) -> TrustRecord | None:
    if (mode := store_files.find_open_mode(get_trust_folder())) is not None and mode & 0o022:
        return None  # others may have access to the folder
    record = _read(_get_trust_file(workspace))
    return record if record is not None and record.workspace == workspace else None


def _read(path: Path) -> TrustRecord | None:
    """Read the record of a workspace; None without a sound one."""
    try:
        data = read_bytes(path, 4_000_000)
        if data is None:
            return None
        record = cast("dict[str, Any]", json.loads(data))
        files = {str(name): TrustedFile(str(f["sha256"]), str(f["text"])) for name, f in record["files"].items()}
        answers = {str(key): answer is True for key, answer in record.get("answers", {}).items()}
        return TrustRecord(Path(str(record["workspace"])), files, answers)
    except (ConfigError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def save(review: TrustReview) -> None:
    """Trust the files as they were reviewed. Raises `ConfigError` if that cannot be stored."""
    project = review.project
    _write(project.workspace, {f.name: _make_entry(f) for f in project.files}, read_answers(project.workspace))


def read_answers(workspace: Path) -> Mapping[str, bool]:
    """Return the user's answers to needs of the project's MCP servers, by their keys."""
    record = _load(workspace.resolve())
    return record.answers if record is not None else {}


def save_answers(workspace: Path, answers: Mapping[str, bool]) -> None:
    """Add answers to those of a trusted workspace. Raises `ConfigError` if they cannot be stored."""
    record = _load(workspace.resolve())
    if record is None:
        raise ConfigError(f"{workspace} is not trusted, so nothing was allowed. `sakti trust` shows and trusts it.")
    files = {name: {"sha256": f.sha256, "text": f.text} for name, f in record.files.items()}
    _write(record.workspace, files, {**record.answers, **answers})


def _write(workspace: Path, files: Mapping[str, Mapping[str, str]], answers: Mapping[str, bool]) -> None:
    record = {"workspace": str(workspace), "files": files, "answers": dict(answers)}
    path, tried = _get_trust_file(workspace), ""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, tried = tempfile.mkstemp(dir=path.parent, prefix=".trust-")  # 0600
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            json.dump(record, file)
        Path(tried).replace(path)
    except OSError as e:
        if tried:
            Path(tried).unlink(missing_ok=True)
        raise ConfigError(f"{path} cannot be written ({e.strerror}): the trust is not saved.") from e


def _make_entry(file: ProjectFile) -> dict[str, str]:
    return {"sha256": "", "text": ""} if file.is_text else {"sha256": file.sha256, "text": file.text}


def revoke(workspace: Path) -> bool:
    """Revoke the trust in a workspace; False if it was not trusted. Raises `ConfigError`."""
    path = _get_trust_file(workspace.resolve())
    try:
        path.unlink()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as e:
        raise ConfigError(f"{path} cannot be removed ({e.strerror}).") from e
    return True


def list_trusted() -> list[tuple[Path, tuple[str, ...]]]:
    """List every trusted workspace with the names of its files, by path."""
    try:
        records = [_read(path) for path in get_trust_folder().glob("*.json")]
    except OSError:
        return []
    return sorted((record.workspace, tuple(record.files)) for record in records if record is not None)

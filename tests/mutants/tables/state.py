"""Phases, moves and what becomes due."""

from tests.mutants.apply import Mutant as M

STATE = "sakti.memory.state"

MUTANTS = (
    M(
        "state-hold-ignored",
        f"{STATE}:MemoryState.settle",
        "held = hold is not None and self.window.pending < hold",
        "held = False",
    ),
    M(
        "state-hold-for-ever",
        f"{STATE}:MemoryState.settle",
        "held = hold is not None and self.window.pending < hold",
        "held = hold is not None",
    ),
    M("state-hold-at", f"{STATE}:MemoryState.settle", "self.window.pending < hold", "self.window.pending <= hold"),
    M("state-pause-ignored", f"{STATE}:MemoryState.settle", "if self.paused:", "if False:"),
    M(
        "state-backoff-ignored",
        f"{STATE}:MemoryState.settle",
        " and self.retry.due(self.window.pending, self.clock.now())",
        "",
    ),
    M("state-no-retry", f"{STATE}:MemoryState.settle", "if self.phase is Phase.BACKING_OFF and", "if False and"),
    M("state-always-behind", f"{STATE}:MemoryState.settle", "self.phase is Phase.CATCHING_UP and", "False and"),
    M("state-no-overflow", f"{STATE}:MemoryState.overflow", "if self.phase is Phase.IDLE and", "if False and"),
    M("state-overflow-early", f"{STATE}:MemoryState.overflow", "> BACKLOG_FACTOR * ", "> "),
    M("state-no-room", f"{STATE}:MemoryState.room", "if self.phase in NEVER_WAITS else None", "if False else None"),
    M(
        "state-reflection-not-seen",
        f"{STATE}:MemoryState._settle_reflection",
        "if stored and phase is not ReflectionPhase.READY:",
        "if False:",
    ),
    M(
        "state-reflection-not-gone",
        f"{STATE}:MemoryState._settle_reflection",
        "elif not stored and phase is ReflectionPhase.READY:",
        "elif False:",
    ),
    M(
        "state-reflection-hold-ignored",
        f"{STATE}:MemoryState._settle_reflection",
        "held = hold is not None and",
        "held = False and",
    ),
    M(
        "state-reflection-hold-for-ever",
        f"{STATE}:MemoryState._settle_reflection",
        "elif self.reflection_phase is ReflectionPhase.HELD and not held:",
        "elif False:",
    ),
    M("state-messages-lost", f"{STATE}:MemoryState._load", "for message in old.messages:", "for message in ():"),
    M("state-no-refresh", f"{STATE}:MemoryState.refresh", "if now == window.revision:", "if True:"),
    M(
        "state-refusal-not-followed",
        f"{STATE}:MemoryState._move",
        "            await self._load()\n            self.changed()\n            raise",
        "            raise",
    ),
    M(
        "state-move-not-followed",
        f"{STATE}:MemoryState._move",
        '        self.failpoint(f"{point}.committed")\n        await self._load()\n',
        '        self.failpoint(f"{point}.committed")\n',
    ),
    M("state-retitled-not-told", f"{STATE}:MemoryState._move", "if done.retitled is not None:", "if False:"),
    M("state-removed-wrong", f"{STATE}:MemoryState._move", "before - len(self.window.messages)", "before"),
    M("state-edit-not-followed", f"{STATE}:MemoryState.write", "            await self._load()\n", ""),
    M(
        "state-refusal-raised",
        f"{STATE}:MemoryState.try_move",
        "        except MemoryFailure:\n            return None  #",
        "        except MemoryFailure:\n            raise  #",
    ),
    M(
        "state-reflection-early",
        f"{STATE}:MemoryState._due",
        "full = self.observation_tokens() >= numbers.reflect_at",
        "full = True",
    ),
    M(
        "state-reflection-at",
        f"{STATE}:MemoryState._due",
        "self.observation_tokens() >= numbers.reflect_at",
        "self.observation_tokens() > numbers.reflect_at",
    ),
    M(
        "state-reflection-never",
        f"{STATE}:MemoryState._due",
        "full = self.observation_tokens() >= numbers.reflect_at",
        "full = False",
    ),
    M(
        "state-threshold-at",
        f"{STATE}:MemoryState._due",
        "window.pending >= numbers.threshold or",
        "window.pending > numbers.threshold or",
    ),
    M(
        "state-threshold-ignored",
        f"{STATE}:MemoryState._due",
        '(window.pending >= numbers.threshold or trigger != "threshold")',
        "True",
    ),
    M("state-never-early", f"{STATE}:MemoryState._due", ' or trigger != "threshold"', ""),
    M(
        "state-all-ready",
        f"{STATE}:MemoryState._due",
        "count = policy.choose_boundary(sizes, numbers.activation, numbers.threshold, window.pending)",
        "count = len(sizes)",
    ),
    M(
        "state-floor-of-one",
        f"{STATE}:MemoryState._due",
        "numbers.activation, numbers.threshold",
        "1.0, numbers.threshold",
    ),
    M(
        "state-ready-beyond",
        f"{STATE}:MemoryState.activate_ready",
        "if upto is None or (g.first_index or 0) <= upto",
        "if True",
    ),
    M("state-own-not-told", f"{STATE}:MemoryState.activate_ready", "into.extend(done.groups)", "pass"),
)

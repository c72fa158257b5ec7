"""Phases of observation and reflection, and the signals that change a thread's phase. Pure.

A thread's observation is in one `Phase`, the reflection on its log in one `ReflectionPhase`; both begin idle.
`TRANSITIONS` and `REFLECTION_TRANSITIONS` list every step: a signal that a phase does not list is a programming error
(`KeyError`).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class Phase(StrEnum):
    """Phase of a thread's observation."""

    IDLE = "idle"  # nothing is running; crossing an interval starts a background observation
    BUFFERING = "buffering"  # a background observation is running, the chat continues
    WAITING = "waiting"  # a step or the user is waiting for an observation
    SUSPENDED = "suspended"  # after the user's undo: nothing starts until one more interval is pending
    PAUSED = "paused"  # paused by the user: nothing starts, the newest messages that fit are sent
    CATCHING_UP = "catching up"  # far more is pending than fits a request: oldest first, in the background
    BACKING_OFF = "backing off"  # the last one failed: retried when more is pending or after some time


class Signal(StrEnum):
    """Signals that change the phase of an observation."""

    BUFFER = "a background observation begins"
    WAIT = "a step or the user waits for an observation"
    DONE = "the observation ended or was cancelled"
    FAILED = "the observation failed"
    RETRY = "the time to try again has come"
    OVERFLOW = "far more is pending than a request takes"
    CAUGHT_UP = "what is pending fits again"
    SUSPEND = "the user undid a compaction"
    GROWN = "one more interval is pending"
    PAUSE = "the user paused memory"
    RESUME = "the user resumed memory"


TRANSITIONS: Mapping[Phase, Mapping[Signal, Phase]] = {
    Phase.IDLE: {
        Signal.BUFFER: Phase.BUFFERING,
        Signal.WAIT: Phase.WAITING,
        Signal.DONE: Phase.IDLE,  # a slice that was running when it was paused, and then resumed
        Signal.FAILED: Phase.BACKING_OFF,
        Signal.OVERFLOW: Phase.CATCHING_UP,
        Signal.SUSPEND: Phase.SUSPENDED,
        Signal.PAUSE: Phase.PAUSED,
    },
    Phase.BUFFERING: {
        Signal.WAIT: Phase.WAITING,
        Signal.DONE: Phase.IDLE,
        Signal.FAILED: Phase.BACKING_OFF,
        Signal.SUSPEND: Phase.SUSPENDED,
        Signal.PAUSE: Phase.PAUSED,
    },
    Phase.WAITING: {
        Signal.WAIT: Phase.WAITING,
        Signal.DONE: Phase.IDLE,
        Signal.FAILED: Phase.BACKING_OFF,
    },
    Phase.SUSPENDED: {
        Signal.WAIT: Phase.WAITING,  # started by the user
        Signal.DONE: Phase.SUSPENDED,  # work that was already running
        Signal.FAILED: Phase.SUSPENDED,
        Signal.GROWN: Phase.IDLE,
        Signal.PAUSE: Phase.PAUSED,
    },
    Phase.PAUSED: {
        Signal.WAIT: Phase.WAITING,  # started by the user
        Signal.DONE: Phase.PAUSED,  # a slice that was already running
        Signal.FAILED: Phase.PAUSED,
        Signal.RESUME: Phase.IDLE,
    },
    Phase.CATCHING_UP: {
        Signal.BUFFER: Phase.CATCHING_UP,
        Signal.WAIT: Phase.WAITING,  # started by the user
        Signal.DONE: Phase.CATCHING_UP,
        Signal.FAILED: Phase.BACKING_OFF,
        Signal.CAUGHT_UP: Phase.IDLE,
        Signal.SUSPEND: Phase.SUSPENDED,
        Signal.PAUSE: Phase.PAUSED,
    },
    Phase.BACKING_OFF: {
        Signal.WAIT: Phase.WAITING,  # started by the user
        Signal.DONE: Phase.BACKING_OFF,
        Signal.FAILED: Phase.BACKING_OFF,
        Signal.RETRY: Phase.IDLE,
        Signal.SUSPEND: Phase.SUSPENDED,
        Signal.PAUSE: Phase.PAUSED,
    },
}

# Phases in which only the user starts work, and those in which a step never waits for an observation.
RESTING = frozenset({Phase.SUSPENDED, Phase.PAUSED})
NEVER_WAITS = frozenset({Phase.SUSPENDED, Phase.PAUSED, Phase.CATCHING_UP, Phase.BACKING_OFF})
# Phases in which a request only has the newest pending messages. After an undo it has the messages from before the
# compaction.
LIMITED = NEVER_WAITS - {Phase.SUSPENDED}


class ReflectionPhase(StrEnum):
    """Phase of the reflection on the log."""

    IDLE = "idle"  # at a share of the log's threshold a background reflection starts
    RUNNING = "running"  # a reflection is running
    READY = "ready"  # a reflection is stored, and enters the log when that reaches its threshold
    SUSPENDED = "suspended"  # after the user's undo: nothing starts until the log has grown by one more interval
    BACKING_OFF = "backing off"  # the last one failed: retried when the log has grown


class ReflectionSignal(StrEnum):
    """Signals that change the phase of a reflection."""

    BEGIN = "a reflection begins"
    DONE = "it is stored"
    FAILED = "it failed"
    GONE = "it entered the log, or the log outran it"
    SUSPEND = "the user undid a reflection"
    GROWN = "the log has grown"


REFLECTION_TRANSITIONS: Mapping[ReflectionPhase, Mapping[ReflectionSignal, ReflectionPhase]] = {
    ReflectionPhase.IDLE: {
        ReflectionSignal.BEGIN: ReflectionPhase.RUNNING,
        ReflectionSignal.DONE: ReflectionPhase.READY,  # by another window
        ReflectionSignal.SUSPEND: ReflectionPhase.SUSPENDED,
    },
    ReflectionPhase.RUNNING: {
        ReflectionSignal.DONE: ReflectionPhase.READY,
        ReflectionSignal.FAILED: ReflectionPhase.BACKING_OFF,
        ReflectionSignal.GONE: ReflectionPhase.IDLE,
    },
    ReflectionPhase.READY: {
        ReflectionSignal.GONE: ReflectionPhase.IDLE,
    },
    ReflectionPhase.SUSPENDED: {
        ReflectionSignal.BEGIN: ReflectionPhase.RUNNING,  # started by the user
        ReflectionSignal.DONE: ReflectionPhase.READY,
        ReflectionSignal.GROWN: ReflectionPhase.IDLE,
    },
    ReflectionPhase.BACKING_OFF: {
        ReflectionSignal.BEGIN: ReflectionPhase.RUNNING,  # started by the user
        ReflectionSignal.DONE: ReflectionPhase.READY,
        ReflectionSignal.GROWN: ReflectionPhase.IDLE,
        ReflectionSignal.SUSPEND: ReflectionPhase.SUSPENDED,
    },
}

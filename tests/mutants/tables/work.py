"""What is asked of the models and made of their answers; leases."""

from tests.mutants.apply import Mutant as M

LEASE = "sakti.memory.jobs.operation"
WORK = "sakti.memory.worker"
PARTS = "sakti.memory.reflect.quality"

MUTANTS = (
    M("observe-system", f"{WORK}:is_observable", 'message.role != "system" and ', "", by="replay:81"),
    M(
        "observe-withheld",
        f"{WORK}:is_observable",
        'message.state == "saved" and ',
        "",
        by="tests/unit/memory/test_window.py::test_only_the_conversation_is_for_an_observer",
    ),
    M("observe-synthetic", f"{WORK}:is_observable", ' and "synthetic" not in message.metadata', "", by="replay:81"),
    M(
        "work-pinned-not-restored",
        f"{PARTS}:restore_pinned",
        'return "\\n".join([*lost, text]) if lost else text',
        "return text",
        by="tests/unit/memory/test_shared.py::test_a_pinned_line_comes_back_in_its_own_part_alone",
    ),
    M(
        "work-pinned-twice",
        f"{PARTS}:restore_pinned",
        "if _strip_line(p) not in have",
        "if True",
        by="tests/unit/memory/test_corrections.py::test_a_pinned_line_outlives_reflections_and_a_waiting_one_is_dropped_by_an_edit",
    ),
    M("work-pins-lost", f"{WORK}:MemoryWorker.reflect", "if _format_pinned(r) in pinned", "if False"),
    M("work-not-smaller", f"{WORK}:MemoryWorker._check_text", "if not text or after >= size:", "if not text:"),
    M("work-not-smaller-at", f"{WORK}:MemoryWorker._check_text", "after >= size:", "after > size:"),
    M(
        "work-reflects-nothing",
        f"{WORK}:MemoryWorker._check_text",
        "if not text or after >= size:",
        "if after >= size:",
    ),
    M(
        "work-merged-one-less",
        f"{WORK}:MemoryWorker.reflect",
        "merged = [g.id for g in groups]",
        "merged = [g.id for g in groups[1:]]",
        by="tests/unit/store/test_integrity.py::test_mending_counts_the_reflections_that_stand_and_finds_nothing_forgotten",
    ),
    M(
        "work-range",
        "sakti.memory.worker:_with_range",
        "first_index=span.first if span else None",
        "first_index=span.last if span else None",
        by="tests/unit/memory/test_faithfulness.py::test_an_emoji_where_a_line_is_cut_is_no_reason_to_stop",
    ),
    M("work-generation", f"{WORK}:MemoryWorker.reflect", "record.generation_count + 1", "record.generation_count"),
    M(
        "work-zone-lost",
        f"{WORK}:with_zone",
        'if not text or request.zone_before in ("", request.timezone):',
        "if True:",
    ),
    M(
        "work-title-lost",
        f"{WORK}:MemoryWorker.observe",
        'if title := parse.clean_line(mask_secrets(result.title or ""), 80):',
        "if title := None:",
    ),
    M(
        "work-response-lost",
        f"{WORK}:MemoryWorker.observe",
        "suggested_response=_clean_state(result.suggested_response, request.suggested_response),",
        "",
    ),
    M(
        "work-task-lost",
        f"{WORK}:MemoryWorker.observe",
        "current_task=_clean_state(result.current_task, request.current_task),",
        "",
        by="tests/unit/memory/test_requests.py::test_task_and_response_are_the_observers",
    ),
    M(
        "work-calls-not-recorded",
        f"{WORK}:MemoryWorker.observe",
        'await self._record_calls(request.thread_id, "observer", result.calls)',
        "pass",
        by="tests/unit/memory/test_deciding.py::test_the_calls_of_an_observer_are_recorded",
    ),
    M(
        "work-no-flags",
        f"{WORK}:MemoryWorker._build_lines",
        "flags=doubts",
        "flags=()",
        by="tests/unit/memory/test_faithfulness.py::test_flags_are_stored_with_the_line",
    ),
    M(
        "lease-not-needed",
        f"{LEASE}:Leases.hold",
        "        if not await self.store.write(take):",
        "        await self.store.write(take)\n        if False:",
    ),
    M("lease-start-not-run", f"{LEASE}:Leases.hold", "if taken and start is not None:", "if False:"),
    M(
        "lease-dead-not-cleared",
        f"{LEASE}:Leases.hold",
        " or (bool(leases.clear_dead(db, record_id, but=self.owner)) and acquire(db))",
        "",
        by="tests/unit/memory/test_deciding.py::test_a_lease_of_a_process_that_is_gone_is_taken_over",
    ),
    M(
        "lease-others-not-waited",
        f"{LEASE}:Leases.others_end",
        "looks = int(self.patience / POLL_S)",
        "return True",
        by="tests/unit/memory/test_deciding.py::test_a_lease_of_a_process_that_is_gone_is_taken_over",
    ),
    M("lease-turn-not-needed", f"{LEASE}:Leases.turn", "if await self.store.read(own):", "if True:"),
)

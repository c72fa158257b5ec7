"""Define the tables as peewee models: their columns and how values are stored, here and nowhere else.

`migrations/` create the schema; a test checks that both agree. Structs made from rows take their columns from
here, too (`rows.Shape`). No model is bound to a database: every query is executed with the one that the caller was
given (`query.execute(db)`), so any number of stores can be open in one process.
"""

from __future__ import annotations

import json
from typing import Any

import peewee
from peewee import BooleanField, CompositeKey, FloatField, IntegerField, Model

from sakti.store import secrets, text_registry
from sakti.store.threads import codec, masking


class TextField(peewee.TextField):
    """Text column; a user's words go through `text_registry.entering` on their way in."""

    _table = ""  # of words

    def bind(self, model: type[Model], name: str, set_attribute: bool = True) -> None:
        super().bind(model, name, set_attribute)
        meta: Any = getattr(model, "_meta")  # noqa: B009
        if text_registry.holds_words(meta.table_name, self.column_name):
            self._table = meta.table_name

    @property
    def masks(self) -> bool:
        """Return whether it holds a user's words, so that secrets are masked."""
        return bool(self._table)

    def db_value(self, value: Any) -> Any:
        text = super().db_value(value)
        return text_registry.entering(self._table, self.column_name, text) if self._table and text else text


class JsonField(TextField):
    """JSON stored as text; NULL is None."""

    def db_value(self, value: Any) -> str | None:
        if isinstance(value, dict | list | tuple) and not value:  # as in most rows: nothing in it to mask
            return "{}" if isinstance(value, dict) else "[]"
        return None if value is None else self._json_text(secrets.masked_value(value) if self._table else value)

    @staticmethod
    def _json_text(value: Any) -> str:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))

    def python_value(self, value: Any) -> Any:
        return None if value is None else json.loads(value)


class ListField(JsonField):
    """A JSON array, read as a tuple."""

    def python_value(self, value: Any) -> Any:
        return None if value is None else tuple(json.loads(value))


class PartsField(JsonField):
    """Parts of a message, compressed if they are long."""

    def db_value(self, value: Any) -> Any:
        return codec.stored(masking.parts(value))

    def python_value(self, value: Any) -> Any:
        return tuple(codec.decode(part) for part in json.loads(codec.unpacked(value)))


class Row(Model):
    pk = IntegerField(primary_key=True)
    id = TextField(unique=True)


class ThreadRow(Row):
    resource_id = TextField()
    title = TextField(default="")
    title_pinned = BooleanField(default=False)
    metadata = JsonField(default=dict)
    parent_id = TextField(null=True)
    mode = TextField(default="default")
    created_at = IntegerField()
    updated_at = IntegerField()
    deleted_at = IntegerField(null=True)

    class Meta:
        table_name = "threads"


class MessageRow(Row):
    thread_id = TextField()
    resource_id = TextField()
    role = TextField()
    message_index = IntegerField()
    format = IntegerField(default=1)
    parts = PartsField()
    raw_content = TextField(default="")  # empty where it is the plain text of the parts
    search_text = TextField(null=True)
    injection_text = TextField(null=True)
    paths = ListField(default=list)
    summary = TextField(null=True)
    compaction_level = IntegerField(default=0)
    task_id = TextField(null=True)
    token_count = IntegerField(default=0)
    part_tokens = ListField(default=list)
    token_counter = TextField(default="")
    sealed_at = IntegerField(null=True)
    state = TextField(default="saved")
    metadata = JsonField(default=dict)
    created_at = IntegerField()

    class Meta:
        table_name = "messages"


class StepRow(Row):
    thread_id = TextField()
    message_id = TextField(null=True)
    purpose = TextField()
    model = TextField()
    counted_tokens = IntegerField(default=0)
    input_tokens = IntegerField(default=0)
    cached_tokens = IntegerField(default=0)
    cache_write_tokens = IntegerField(default=0)
    output_tokens = IntegerField(default=0)
    reasoning_tokens = IntegerField(default=0)
    cost_usd = FloatField(null=True)
    duration_ms = IntegerField(default=0)
    stop_reason = TextField(default="")
    created_at = IntegerField()
    request = JsonField(null=True)

    class Meta:
        table_name = "steps"


class RequestBlockRow(Model):
    pk = IntegerField(primary_key=True)
    thread_id = TextField()
    hash = TextField()
    text = TextField()

    class Meta:
        table_name = "request_blocks"


class MemoryRecordRow(Row):
    lookup_key = TextField()
    scope = TextField()
    thread_id = TextField(null=True)
    resource_id = TextField()
    origin_type = TextField(default="initialization")
    generation_count = IntegerField(default=0)
    last_observed_at = IntegerField(null=True)
    last_reflection_at = IntegerField(null=True)
    pending_message_tokens = IntegerField(default=0)
    total_tokens_observed = IntegerField(default=0)
    observation_token_count = IntegerField(default=0)
    last_buffered_at_tokens = IntegerField(default=0)
    last_buffered_at_time = IntegerField(null=True)
    revision = IntegerField(default=0)
    observed_timezone = TextField(default="UTC")
    metadata = JsonField(default=dict)
    created_at = IntegerField()
    updated_at = IntegerField()

    class Meta:
        table_name = "observational_memory"


class GroupRow(Row):
    record_id = TextField()
    thread_id = TextField()
    kind = TextField()
    state = TextField()
    mode = TextField(default="default")
    first_message_id = TextField(null=True)
    last_message_id = TextField(null=True)
    first_index = IntegerField(null=True)
    last_index = IntegerField(null=True)
    message_ids = ListField(default=list)
    message_tokens = IntegerField(default=0)
    observation_tokens = IntegerField(default=0)
    text = TextField()
    generation = IntegerField(default=0)
    merged_group_ids = ListField(default=list)
    cycle_id = TextField(default="")
    operation_id = TextField(default="")
    model = TextField(default="")
    prompt_hash = TextField(default="")
    current_task = TextField(null=True)
    suggested_response = TextField(null=True)
    metadata = JsonField(default=dict)
    created_at = IntegerField()
    activated_at = IntegerField(null=True)
    superseded_at = IntegerField(null=True)
    discarded_at = IntegerField(null=True)
    origin = TextField(default="thread")

    class Meta:
        table_name = "observation_groups"


class ObservationRow(Row):
    group_id = TextField()
    thread_id = TextField()
    resource_id = TextField()
    line = IntegerField()
    depth = IntegerField(default=0)
    mode = TextField(default="default")
    observed_date = TextField(default="")
    time = TextField(default="")
    priority = TextField(default="low")
    category = TextField(default="")
    content = TextField()
    metadata = JsonField(default=dict)
    pinned = IntegerField(default=0)
    edited = TextField(null=True)
    forgotten = IntegerField(default=0)
    flags = ListField(default=list)
    created_at = IntegerField()

    class Meta:
        table_name = "observations"


class CompactionRow(Row):
    thread_id = TextField()
    resource_id = TextField()
    record_id = TextField()
    focus = TextField(default="")
    first_index = IntegerField(null=True)
    last_index = IntegerField(null=True)
    message_count = IntegerField()
    summary = TextField(default="")
    original_message_ids = ListField()
    group_ids = ListField(default=list)
    before = JsonField(default=dict)
    tokens_before = IntegerField()
    tokens_after = IntegerField()
    created_at = IntegerField()
    undone_at = IntegerField(null=True)

    class Meta:
        table_name = "compaction_records"


class WorkingMemoryRow(Row):
    scope = TextField()
    owner_id = TextField()
    version = IntegerField()
    content = TextField()
    tokens = IntegerField(default=0)
    actor = TextField(default="")
    created_at = IntegerField()

    class Meta:
        table_name = "working_memory"


class TaskRow(Row):
    resource_id = TextField()
    handle = TextField()
    title = TextField()
    description = TextField(default="")
    status = TextField(default="open")
    priority = IntegerField(default=2)
    type = TextField(default="task")
    assignee = TextField(null=True)
    session_id = TextField(null=True)
    claimed_at = IntegerField(null=True)
    claim_expires_at = IntegerField(null=True)
    thread_id = TextField(null=True)
    close_reason = TextField(null=True)
    summary = TextField(null=True)
    compaction_level = IntegerField(default=0)
    compacted_at = IntegerField(null=True)
    claim_owner = TextField(null=True)
    original = JsonField(null=True)
    metadata = JsonField(default=dict)
    created_at = IntegerField()
    updated_at = IntegerField()
    closed_at = IntegerField(null=True)
    deleted_at = IntegerField(null=True)
    own_blockers = IntegerField(default=0)
    open_children = IntegerField(default=0)
    held = IntegerField(default=0)

    class Meta:
        table_name = "tasks"


class TaskEdgeRow(Model):
    task_id = TextField()
    depends_on = TextField()
    type = TextField()
    created_at = IntegerField()

    class Meta:
        table_name = "task_dependencies"
        primary_key = CompositeKey("task_id", "depends_on", "type")


class TaskLabelRow(Model):
    task_id = TextField()
    label = TextField()

    class Meta:
        table_name = "task_labels"
        primary_key = CompositeKey("task_id", "label")


class TaskMessageRow(Model):
    task_id = TextField()
    message_id = TextField()
    relation = TextField()
    created_at = IntegerField()

    class Meta:
        table_name = "task_messages"
        primary_key = CompositeKey("task_id", "message_id")


class TaskCountRow(Model):
    resource_id = TextField()
    state = TextField()
    type = TextField()
    count = IntegerField(default=0)

    class Meta:
        table_name = "task_counts"
        primary_key = CompositeKey("resource_id", "state", "type")


class TaskEventRow(Model):
    pk = IntegerField(primary_key=True)
    task_id = TextField()
    resource_id = TextField()
    action = TextField()
    actor = TextField(default="")
    before = JsonField(null=True)
    after = JsonField(null=True)
    created_at = IntegerField()
    undone_at = IntegerField(null=True)
    batch = TextField(null=True)

    class Meta:
        table_name = "task_events"


class SearchDocRow(Model):
    pk = IntegerField(primary_key=True)
    kind = TextField()
    doc_id = TextField()
    resource_id = TextField()
    thread_id = TextField(null=True)
    task_id = TextField(null=True)
    role = TextField(default="")
    position = IntegerField(default=0)
    created_at = IntegerField()
    text = TextField()
    idents = TextField(default="")
    prev = TextField(default="")
    summary = TextField(default="")
    paths = TextField(default="")
    form = IntegerField(default=1)
    message_pk = IntegerField(null=True)
    prev_pk = IntegerField(null=True)

    class Meta:
        table_name = "search_docs"


class CarryOverRow(Model):
    thread_id = TextField()
    position = IntegerField()
    kind = TextField()
    source_id = TextField()
    text = TextField()

    class Meta:
        table_name = "carry_over"
        primary_key = CompositeKey("thread_id", "position")


class LeaseRow(Model):
    record_id = TextField()
    kind = TextField()
    thread_id = TextField(default="")
    owner = TextField()
    operation_id = TextField()
    started_at = IntegerField()
    heartbeat_at = IntegerField()
    expires_at = IntegerField()

    class Meta:
        table_name = "leases"
        primary_key = CompositeKey("record_id", "kind", "thread_id")


class PromptRow(Model):
    pk = IntegerField(primary_key=True)
    resource_id = TextField()
    text = TextField()
    created_at = IntegerField()
    thread_id = TextField(null=True)

    class Meta:
        table_name = "prompt_history"


class UnsentRow(Model):
    pk = IntegerField(primary_key=True)
    resource_id = TextField()
    owner = TextField()
    draft = TextField()
    queued = ListField()
    updated_at = IntegerField()
    thread_id = TextField(null=True)

    class Meta:
        table_name = "unsent"


class RuleRow(Model):
    resource_id = TextField()
    rule = TextField()
    decision = TextField()
    created_at = IntegerField()

    class Meta:
        table_name = "approval_rules"
        primary_key = CompositeKey("resource_id", "rule")


class ChildRunRow(Model):
    pk = IntegerField(primary_key=True)
    child_id = TextField(unique=True)
    parent_id = TextField()
    call_id = TextField()
    mode = TextField(default="default")
    agent = TextField(default="")
    goal = TextField()
    background = BooleanField(default=False)
    state = TextField(default="running")
    report = JsonField(null=True)
    started_at = IntegerField()
    ended_at = IntegerField(null=True)
    delivered_at = IntegerField(null=True)

    class Meta:
        table_name = "child_runs"


class JobRow(Model):
    pk = IntegerField(primary_key=True)
    thread_id = TextField()
    number = IntegerField()
    command = TextField()
    pid = IntegerField(null=True)
    pid_started = IntegerField(null=True)
    state = TextField(default="running")
    exit_code = IntegerField(null=True)
    file = TextField(default="")
    started_at = IntegerField()
    ended_at = IntegerField(null=True)
    reported_at = IntegerField(null=True)

    class Meta:
        table_name = "jobs"


class ImportSourceRow(Model):
    pk = IntegerField(primary_key=True)
    program = TextField()
    path = TextField()
    device = IntegerField()
    inode = IntegerField()
    size = IntegerField()
    mtime = IntegerField()
    offset = IntegerField(default=0)
    head = TextField(default="")
    counts = JsonField(default=dict)
    last_run = TextField()

    class Meta:
        table_name = "import_sources"


class OriginRow(Model):
    pk = IntegerField(primary_key=True)
    program = TextField()
    entry_id = TextField()
    thread_id = TextField()
    message_id = TextField(null=True)
    run_id = TextField()

    class Meta:
        table_name = "origins"


class UiStateRow(Model):
    key = TextField(primary_key=True)
    value = TextField()

    class Meta:
        table_name = "ui_state"


class ReindexingRow(Model):
    thread_id = TextField(primary_key=True)
    operation_id = TextField()

    class Meta:
        table_name = "reindexing"


class PackingRow(Model):
    step = TextField(primary_key=True)
    next_pk = IntegerField()

    class Meta:
        table_name = "packing"


MODELS: tuple[type[Model], ...] = (
    ThreadRow,
    MessageRow,
    StepRow,
    RequestBlockRow,
    MemoryRecordRow,
    GroupRow,
    ObservationRow,
    CompactionRow,
    WorkingMemoryRow,
    TaskRow,
    TaskEdgeRow,
    TaskLabelRow,
    TaskMessageRow,
    TaskCountRow,
    TaskEventRow,
    SearchDocRow,
    CarryOverRow,
    LeaseRow,
    PromptRow,
    UnsentRow,
    RuleRow,
    ChildRunRow,
    JobRow,
    ImportSourceRow,
    OriginRow,
    UiStateRow,
    ReindexingRow,
    PackingRow,
)

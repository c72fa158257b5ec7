"""Define the tables as peewee models: their columns and how values are stored, here and nowhere else.

The kind of a text column tells whether it has words of a user: `TextField` has none, `WordsField` has, `JsonField` and
`ListField` JSON with words, `PlainJsonField` and `PlainListField` JSON without, `PartsField` compressed JSON.
`text_registry` derives from it what is masked, checked and removed.

`migrations/` create the schema; a test checks that both agree. Structs made from rows take their columns from
here, too (`rows.Shape`). No model is bound to a database: every query is executed with the one that the caller was
given (`query.execute(db)`), so any number of stores can be open in one process.
"""

from __future__ import annotations

import json
from typing import Any

import peewee
from peewee import BooleanField, CompositeKey, FloatField, IntegerField, Model

from sakti.store import secrets
from sakti.store.threads import codec


class TextField(peewee.TextField):
    """Text without a user's words: an id, a kind, a name of ours."""

    has_words = False

    def mask(self, text: str) -> str:
        """Mask the secrets in a text as the column may hold it."""
        return text


class WordsField(TextField):
    """Text with words of the user or of a conversation: secrets in it are masked on their way in."""

    has_words = True

    def mask(self, text: str) -> str:
        return secrets.mask_secrets(text)

    def db_value(self, value: Any) -> Any:
        text = super().db_value(value)
        return self.mask(text) if text else text


class JsonField(TextField):
    """JSON stored as text, with words of the user; NULL is None."""

    has_words = True
    if_unreadable: str | None = "{}"

    def mask(self, text: str) -> str:
        clean = secrets.mask_secrets(text)
        # text by text: a secret never spans two of them
        return text if clean == text else self._encode_json(secrets.mask_value(json.loads(text)))

    def db_value(self, value: Any) -> Any:
        if isinstance(value, dict | list | tuple) and not value:  # as in most rows: nothing in it to mask
            return "{}" if isinstance(value, dict) else "[]"
        return None if value is None else self._encode_json(secrets.mask_value(value) if self.has_words else value)

    @staticmethod
    def _encode_json(value: Any) -> str:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))

    def python_value(self, value: Any) -> Any:
        return None if value is None else json.loads(value)


class ListField(JsonField):
    """A JSON array, read as a tuple."""

    if_unreadable = "[]"

    def python_value(self, value: Any) -> Any:
        return None if value is None else tuple(json.loads(value))


class PlainJsonField(JsonField):
    """JSON without words of the user."""

    has_words = False


class PlainListField(ListField):
    """A JSON array without words of the user: ids or numbers."""

    has_words = False


class PartsField(JsonField):
    """Parts of a message, compressed if they are long."""

    if_unreadable = None  # recovery makes parts of the plain text

    def db_value(self, value: Any) -> Any:
        return codec.encode_parts(codec.mask_parts(value))

    def python_value(self, value: Any) -> Any:
        return tuple(codec.decode(part) for part in json.loads(codec.unpack(value)))


def get_meta(model: type[Model]) -> Any:
    """Return peewee's metadata of a model: its table's name, fields and key."""
    return getattr(model, "_meta")  # noqa: B009


class StoredRow(Model):
    pk = IntegerField(primary_key=True)
    id = TextField(unique=True)


class ThreadRow(StoredRow):
    resource_id = TextField()
    title = WordsField(default="")
    title_pinned = BooleanField(default=False)
    metadata = JsonField(default=dict)
    parent_id = TextField(null=True)
    mode = TextField(default="default")
    created_at = IntegerField()
    updated_at = IntegerField()
    deleted_at = IntegerField(null=True)

    class Meta:
        table_name = "threads"


class MessageRow(StoredRow):
    thread_id = TextField()
    resource_id = TextField()
    role = TextField()
    message_index = IntegerField()
    format = IntegerField(default=1)
    parts = PartsField()
    raw_content = WordsField(default="")  # empty if it equals the plain text of the parts
    search_text = WordsField(null=True)
    injection_text = WordsField(null=True)
    paths = ListField(default=list)
    summary = WordsField(null=True)
    compaction_level = IntegerField(default=0)
    task_id = TextField(null=True)
    token_count = IntegerField(default=0)
    part_tokens = PlainListField(default=list)
    token_counter = TextField(default="")
    sealed_at = IntegerField(null=True)
    state = TextField(default="saved")
    metadata = JsonField(default=dict)
    created_at = IntegerField()

    class Meta:
        table_name = "messages"


class StepRow(StoredRow):
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
    request = PlainJsonField(null=True)

    class Meta:
        table_name = "steps"


class RequestBlockRow(Model):
    pk = IntegerField(primary_key=True)
    thread_id = TextField()
    hash = TextField()
    text = WordsField()

    class Meta:
        table_name = "request_blocks"


class MemoryRecordRow(StoredRow):
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


class GroupRow(StoredRow):
    record_id = TextField()
    thread_id = TextField()
    kind = TextField()
    state = TextField()
    mode = TextField(default="default")
    first_message_id = TextField(null=True)
    last_message_id = TextField(null=True)
    first_index = IntegerField(null=True)
    last_index = IntegerField(null=True)
    message_ids = PlainListField(default=list)
    message_tokens = IntegerField(default=0)
    observation_tokens = IntegerField(default=0)
    text = WordsField()
    generation = IntegerField(default=0)
    merged_group_ids = PlainListField(default=list)
    cycle_id = TextField(default="")
    operation_id = TextField(default="")
    model = TextField(default="")
    prompt_hash = TextField(default="")
    current_task = WordsField(null=True)
    suggested_response = WordsField(null=True)
    metadata = JsonField(default=dict)
    created_at = IntegerField()
    activated_at = IntegerField(null=True)
    superseded_at = IntegerField(null=True)
    discarded_at = IntegerField(null=True)
    origin = TextField(default="thread")

    class Meta:
        table_name = "observation_groups"


class ObservationRow(StoredRow):
    group_id = TextField()
    thread_id = TextField()
    resource_id = TextField()
    line = IntegerField()
    depth = IntegerField(default=0)
    mode = TextField(default="default")
    observed_date = TextField(default="")
    time = TextField(default="")
    priority = TextField(default="low")
    category = WordsField(default="")
    content = WordsField()
    metadata = JsonField(default=dict)
    pinned = IntegerField(default=0)
    edited = WordsField(null=True)
    forgotten = IntegerField(default=0)
    flags = ListField(default=list)
    created_at = IntegerField()

    class Meta:
        table_name = "observations"


class CompactionRow(StoredRow):
    thread_id = TextField()
    resource_id = TextField()
    record_id = TextField()
    focus = WordsField(default="")
    first_index = IntegerField(null=True)
    last_index = IntegerField(null=True)
    message_count = IntegerField()
    summary = WordsField(default="")
    original_message_ids = PlainListField()
    group_ids = PlainListField(default=list)
    before = JsonField(default=dict)
    tokens_before = IntegerField()
    tokens_after = IntegerField()
    created_at = IntegerField()
    undone_at = IntegerField(null=True)

    class Meta:
        table_name = "compaction_records"


class WorkingMemoryRow(StoredRow):
    scope = TextField()
    owner_id = TextField()
    version = IntegerField()
    content = WordsField()
    tokens = IntegerField(default=0)
    actor = TextField(default="")
    created_at = IntegerField()

    class Meta:
        table_name = "working_memory"


class TaskRow(StoredRow):
    resource_id = TextField()
    handle = TextField()
    title = WordsField()
    description = WordsField(default="")
    status = TextField(default="open")
    priority = IntegerField(default=2)
    type = TextField(default="task")
    assignee = WordsField(null=True)
    session_id = TextField(null=True)
    claimed_at = IntegerField(null=True)
    claim_expires_at = IntegerField(null=True)
    thread_id = TextField(null=True)
    close_reason = TextField(null=True)
    summary = WordsField(null=True)
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
    label = WordsField()

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
    actor = WordsField(default="")
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
    text = WordsField()
    idents = WordsField(default="")
    prev = WordsField(default="")
    summary = WordsField(default="")
    paths = WordsField(default="")
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
    text = WordsField()

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
    text = WordsField()
    created_at = IntegerField()
    thread_id = TextField(null=True)

    class Meta:
        table_name = "prompt_history"


class UnsentRow(Model):
    pk = IntegerField(primary_key=True)
    resource_id = TextField()
    owner = TextField()
    draft = WordsField()
    queued = ListField()
    updated_at = IntegerField()
    thread_id = TextField(null=True)

    class Meta:
        table_name = "unsent"


class RuleRow(Model):
    resource_id = TextField()
    rule = WordsField()
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
    goal = WordsField()
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
    command = WordsField()
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
    counts = PlainJsonField(default=dict)
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
    value = WordsField()

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

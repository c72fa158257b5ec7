"""Store the tasks of a workspace: rows, edges, claims, links to messages, change log.

The peewee models (`sakti.store.models`) are the one schema beside the migrations; a test holds the two together.
Ordinary statements are peewee queries: `rows`, `edges`, `claims`, `links`, `events`. SQL stands where it is named and
measured, in three modules:

- `questions`: what a shell asks. `sakti tasks ready` is a process that asks one question and ends; without peewee it
  needs 0.11 s of CPU, with its import 0.06 s more, and building a query of a task's columns takes 0.3 ms, running it
  0.03 ms. These functions work on any `Database`, also on the bare connection of `sakti.store.one_shot`.
- `graph`: walks over edges with arrays and recursion, and the cached columns that they keep.
- `search`: an FTS5 index.

`row` is the one place that makes a `Task` of a row.
"""

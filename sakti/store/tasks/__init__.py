"""Store the tasks of a workspace: rows, edges, claims, links to messages, change log.

`rows` writes them, in peewee queries; `questions` reads and searches them on any `Database`, also without peewee;
`graph` updates and checks cached columns by walks over edges; `deadlocks` finds cycles. `sakti tasks ready` is a
process that runs one query: without peewee it takes 0.11 s of CPU, with its import 0.06 s more; building a query of a
task's columns takes 0.3 ms, running it 0.03 ms.
"""

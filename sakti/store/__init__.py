"""Store everything in SQLite; the only package that speaks SQL.

Opening: `database` (writer thread, connections), `opening`, `database_file`, `unsaved`, `migrate`, `models`.
Rows: `threads`, `memory`, `log`, `tasks`, `working_memory`, `user_state`, `workspaces`, `leases`; `rows` by model.
Secrets: `secrets` masks with the patterns of `secret_*`; `text_registry` lists the columns with words.
`search` answers queries; `maintenance` checks, repairs, backs up, archives and cleans.
"""

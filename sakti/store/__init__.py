"""Store everything in SQLite; the only package that uses SQL.

Opening: `database` (writer thread, connections), `opening`, `database_file`, `copies`, `migrate`, `models`. Rows:
`threads`, `memory`, `log`, `tasks`, `user_state`, `leases`, `imports`; `rows` maps them by model. Secrets: `secrets`
masks with the patterns of `secret_*`; `text_registry` lists the columns with words. `search` answers queries;
`maintenance` checks, repairs, backs up, archives and cleans.
"""

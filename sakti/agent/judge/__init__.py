"""Judge tool calls by their reads, writes and commands: one function, `decide.judge`.

`decide` applies the `policy` of modes and rules to the effects of a call in a workspace (`workspace_view`). `commands`
reads a command by `shell`, which parses it with `syntax`, `words` and `expansion`. `programs` and `call_forms` describe
programs from `programs.toml`; `git` and `repositories` handle git. `irreversible` and `execution` each recognise one
kind of effect, `workspace_view` secret files.
"""

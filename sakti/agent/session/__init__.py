"""Run one user's session in one workspace, with one open thread at a time.

`session` composes the rest; `turns` runs turns, each a `turn` of model calls (`model_call`); `prompt` builds the
system prompt and its facts; `user_calls` and `goals` begin turns; `side_calls` ask beside the thread; `session_hooks`
runs hooks; `queries` answers the screen; `models` chooses the models; `lifecycle` has the steps at start and end.
"""

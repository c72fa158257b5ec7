"""Hold one user's session in one workspace, talking in one thread at a time.

`session` composes the rest; `queries` answers the screen; `models` chooses the models; `hooking` connects hooks.
`turns` starts and queues turns; `turn` and `running_turn` are a turn's state, `model_call` one call, `turn_lease` its
lock, `recovery` its end after a crash.
`system_prompt` and `prompt_facts` write the prompt; `called` reads commands; `trusting` decides on a workspace's files.
"""

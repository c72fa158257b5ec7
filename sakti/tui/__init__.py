"""Draw the terminal interface.

Messages go up, attributes down; each part is handed what it needs and knows a `Host`.

`run` starts `app`, the window: themes, workers, terminal. `startup` opens the session, `bridge` turns its events into
calls. `chat` is the main screen: `conversation` sends the input, `thread_view` shows the thread, `commands` runs slash
commands. `screens` open over it; `panes` are beside the conversation; `widgets` draw, using the pure `transcript`.
Imports go down in this order only.
"""

"""Draw the terminal interface. Messages go up, attributes down; each part is handed what it needs and knows a `Host`.

`run` starts `app`, the window: themes, workers, terminal. In it `startup` opens the session, `bridge` turns its events
into calls. `chat` is the screen with its parts: `conversation` sends what is typed, `thread_view` shows the thread,
`commands` runs the slash commands. `screens` lie over it; `panes` stand beside the conversation; `widgets` draw, with
`transcript`, which is pure. Who imports whom goes that way down.
"""

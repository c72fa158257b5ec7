"""Chat: `screen` has the layout and keys, its other modules the parts that act.

`conversation` sends the input; `commands` runs slash commands; `thread_view` shows the thread and search hits.
`browsing` decides where keys go; `find` finds words in the thread; `stop_control` decides what Esc and ctrl+c stop;
`panes` fills the side bar; `completer` offers completions and keeps drafts.
"""

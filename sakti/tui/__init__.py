"""Terminal interface; imports only go down this list, and nothing below `app` knows it, only a `Host`.

`run`: process; `app`: window and start; `bridge`: events of the session; `chat`: main screen; `screens`: over the chat;
`panes`: beside it; `widgets`: draw on the terminal with `transcript`, lines of styled text without widgets.
Used by all: `host`, `appearance` and `palette`, `keys`, `activities`, `desktop` (programs outside), `driver`.
"""

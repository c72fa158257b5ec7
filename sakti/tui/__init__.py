"""Terminal interface; imports only go down this list, and modules below `app` see only a `Host`.

`run`: process; `app`: window and start; `bridge`: events of the session; `chat`: main screen; `screens`: over the chat;
`panes`: beside it; `widgets`: drawn with `transcript`, which lays out styled text and has no widgets.
Used by all: `host`, `appearance` and `palette`, `keys`, `activities`, `desktop` (programs outside), `driver`.
"""

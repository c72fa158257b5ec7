"""Call model providers: one protocol, its implementations, and how one of them is chosen.

Choosing: `presets` (the data), `registry`, `endpoint`, `facts`, `prices`, `serving`, `keys`.
Calling: `protocol`; `anthropic`, `openai_chat` and `openai_responses` on the base `remote`, by `server` and `sse`.
Rendering: `history` makes alternating turns, `accepts` and `refused_pieces` leave out what a server refuses.
Failures: `errors`, `refusals`, `limits`, `retry`. `local` runs a small model; `scripted` plays one.
"""

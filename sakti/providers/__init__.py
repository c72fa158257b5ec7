"""Call model providers: one protocol, its implementations, and how one of them is chosen.

Choosing: `presets` (the data), `registry`, `endpoint`, `facts` (with prices), `serving`, `keys`.
Calling: `protocol`; `anthropic`, `openai_chat` and `openai_responses` on the base `remote`, by `sse`.
Rendering: `history` makes alternating turns, `omissions` leaves out what a server or a model does not take.
Failures: `errors`, `limits` (with retries). `local` runs a small model; `scripted` plays one.
"""

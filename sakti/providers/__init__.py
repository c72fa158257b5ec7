"""Call model providers: the protocol, its implementations, and the selection of a model.

Choosing: `presets` (the data), `registry`, `endpoint`, `facts` (with prices), `serving`, `keys`. Calling: `protocol`;
`anthropic`, `openai_chat` and `openai_responses` on the base `remote`, by `sse`. Rendering: `history` makes alternating
turns, `omissions` leaves out content and settings that a server or model rejects. Failures: `errors`, `limits` (with
retries). `local` runs a small model; `scripted` replays prepared answers.
"""

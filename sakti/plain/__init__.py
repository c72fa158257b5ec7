"""Chat line by line, for screen readers and plain terminals. `sakti.plain.chat.run` starts it.

Nothing here moves a cursor, draws or colours; every line makes sense when it is read aloud.
"""

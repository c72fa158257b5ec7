"""Find which older statements a newer one replaces. Pure.

`sentences` classifies sentences, `reading` parses clauses into a subject and its values, `superseding` compares them,
`marking` marks the lines of the log. English and German words are data (`lexicon.toml`).
"""

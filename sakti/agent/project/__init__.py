"""Find, trust and read the files by which a workspace changes the behaviour of sakti.

`files` lists them, `trust` stores the answer of the user, `markdown` reads their markup; `instructions`, `skills`
and `hooks` are the kinds of them.
"""

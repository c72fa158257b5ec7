"""Find, trust and read the files with which a workspace changes what sakti does.

`files` lists them, `trust` stores the answer of the user, `markdown` reads their markup; `instructions`, `skills`
and `hooks` are the kinds of them.
"""

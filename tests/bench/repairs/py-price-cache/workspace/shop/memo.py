"""Remembering what a slow function said."""

import functools


def remember(limit=1000):
    """Keep the last `limit` answers of a function; `forget()` of the result drops them all."""

    def wrap(function):
        answers = {}

        @functools.wraps(function)
        def remembered(*args, **kwargs):
            key = make_key(args, kwargs)
            if key not in answers:
                if len(answers) >= limit:
                    answers.pop(next(iter(answers)))
                answers[key] = function(*args, **kwargs)
            return answers[key]

        remembered.forget = answers.clear
        remembered.size = lambda: len(answers)
        return remembered

    return wrap


def make_key(args, kwargs):
    """What tells one call from another."""
    return "|".join(str(a) for a in args)

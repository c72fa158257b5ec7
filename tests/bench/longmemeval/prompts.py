"""Prompts of the answer model and of the judge, in our own words; the log stores their hashes and the judge's text."""

from __future__ import annotations

from sakti.core.types import Json
from sakti.importers.inputs import compute_short_hash

ANSWER = """\
You have talked with the user for a long time. Answer the question at the end from what was said: from the notes and \
messages here, and from older messages that the tool memory-search finds. Search if the answer is not in front of you, \
in other words if the first ones find nothing, {steps} times at most. The question is asked on {date}; work out dates \
from the times of the messages. Answer in one or two sentences, without explanations. If it was never said, reply that \
you do not know."""
ANSWER_ALONE = """\
You have talked with the user for a long time; the whole conversation is here. Answer the question at the end from \
what was said. The question is asked on {date}; work out dates from the times of the messages. Answer in one or two \
sentences, without explanations. If it was never said, reply that you do not know."""

JUDGE = """\
You compare an answer with the reference answer to a question. {rule} Reply with one word: yes if the answer is right, \
no if it is wrong."""
JUDGE_PROMPT = "Question: {question}\n\nReference: {reference}\n\nAnswer: {answer}\n\nIs the answer right?"

_FACT = """\
It is right if it states what the reference states, in whatever words; more than that does no harm as long as it does \
not contradict the reference. It is wrong if something of the reference is missing or has another value."""
_LIST = """\
The reference may list several things from different conversations. The answer is right only if it has all of them and \
none that is wrong; their order does not matter."""
_TIME = """\
The question is about a time. The same moment in another form is right ("the day before 8 May" for 7 May), and so is a \
count of days, weeks or months that is off by one. Another date is wrong."""
_UPDATE = """\
What is asked for changed over time; the reference is the newest state. The answer is right if it gives that state, \
even if it also mentions the earlier one as past. It is wrong if it gives an earlier state as the present one."""
_PREFERENCE = """\
The reference describes what this person likes. The answer is right if it fits that and makes use of it; it need not \
repeat every point of the reference. It is wrong if it is general or ignores what the person likes."""
_OPEN = """\
The question may need a conclusion from what was said. The answer is right if it comes to the same conclusion as the \
reference, for whatever reason."""
ABSTENTION_RULE = """\
The question asks for something that was never said. The answer is right if it says that this is not known or was not \
mentioned, and wrong if it gives an answer all the same."""
RULES = {
    "single-session-user": _FACT,
    "single-session-assistant": _FACT,
    "single-session-preference": _PREFERENCE,
    "multi-session": _LIST,
    "knowledge-update": _UPDATE,
    "temporal-reasoning": _TIME,
    "multi-hop": _LIST,
    "temporal": _TIME,
    "open-domain": _OPEN,
    "single-hop": _FACT,
}

SOURCE = """\
You check one line of notes against the messages that it was taken from. Reply with one word: yes if everything in the \
line is said in the messages, no if some of it is not."""
SOURCE_PROMPT = "Messages:\n{messages}\n\nLine: {line}\n\nIs everything in the line said in the messages?"


def judge_system(type: str, *, abstention: bool) -> str:
    """Return the judge's instructions for a type of question."""
    return JUDGE.format(rule=ABSTENTION_RULE if abstention else RULES.get(type, _FACT))


def hashes() -> Json:
    """Return the hashes of what the answer model and the judge are told."""
    return {
        "answer": compute_short_hash(ANSWER, ANSWER_ALONE),
        "judge": compute_short_hash(JUDGE, JUDGE_PROMPT, ABSTENTION_RULE, *RULES.values(), SOURCE, SOURCE_PROMPT),
    }

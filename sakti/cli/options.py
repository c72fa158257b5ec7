"""Declare the command-line options of the chat, which `sakti run` shares."""

from __future__ import annotations

from sakti.actions.spec import SET, flag, option

SHELLS = ("bash", "zsh", "fish")  # shells that sakti supports

MODEL = option("-m", "--model", metavar="PROVIDER/NAME", help="Model to use.", offers="providers")
APPROVAL = option("--approval", metavar="MODE", help="plan, ask, edits or auto; full asks nothing, for containers.",
                  choices=("plan", "ask", "edits", "auto", "full"),
                  offers=("plan", "ask", "edits", "auto"))  # fmt: skip
MODE = option("--mode", metavar="MODE", offers="modes",
              help="How the agent works and what is remembered: explore, debugging, …")  # fmt: skip
CONTINUE = flag("-c", "--continue", name="continue_last", help="Continue the last thread.")
ADD_DIR = option("--add-dir", name="added", many=True, metavar="DIR", offers="files",
                 help="Also work in this folder, as in the workspace; may be repeated.")  # fmt: skip
NO_SAVE = flag("--no-save", help="Save nothing: earlier threads can be read, the database stays as it is.")
DEBUG = flag("--debug", help="Write debug messages to the log file.")
CHAT = (
    CONTINUE,
    option("-r", "--resume", optional=True, metavar="THREAD", offers="threads",
           help="Resume a thread; without a name, pick one."),
    MODEL,
    APPROVAL,
    MODE,
    ADD_DIR,
    SET,
    flag("--plain", help="Plain mode: the chat line by line, for screen readers and simple terminals."),
    NO_SAVE,
    DEBUG,
)  # fmt: skip
PRINT = option("-p", "--print", metavar="PROMPT", help="The same as `sakti run PROMPT`.")
INSTALL = option("--install-completion", optional=True, metavar="SHELL", choices=SHELLS,
                 help="Complete commands with Tab in your shell ($SHELL), or in bash, zsh or fish.")  # fmt: skip
SHOW = option("--show-completion", optional=True, metavar="SHELL", choices=SHELLS,
              help="Print the completion script.")  # fmt: skip
HELP = frozenset(("-h", "--help"))
TOP = (*CHAT, PRINT, INSTALL, SHOW, flag("-V", "--version", help="Show the version and exit."))
ABOUT = (
    "A coding agent for the terminal whose memory you can see.\n\n"
    '`sakti` opens the chat in the current workspace; `sakti "PROMPT"` starts with a prompt.'
)

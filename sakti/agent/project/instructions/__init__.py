"""Read what a project and its user want every agent to know: AGENTS.md, CLAUDE.md, rules."""

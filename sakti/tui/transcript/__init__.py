"""Model the transcript without widgets: blocks that draw text, Markdown, code and diffs as lines."""

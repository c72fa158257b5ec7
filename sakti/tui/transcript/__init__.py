"""What the transcript shows, without a widget: blocks, and the text, Markdown, code and diffs in them as lines."""

"""Skills and commands that a project or its user brings: what the model may load, and what is typed as `/name`."""

"""Skills, which the model may load, and commands, which are typed as `/name`."""

"""Run commands of the user and of trusted projects at events, and apply their decisions."""

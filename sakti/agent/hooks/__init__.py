"""Run commands of the user and of trusted projects at events: what they are told, and what they decide."""

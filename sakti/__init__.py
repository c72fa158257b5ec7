"""sakti: a coding agent for the terminal whose memory you can see."""

__version__ = "0.1.0"

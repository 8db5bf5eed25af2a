"""whichrank: which rank held the others up, why, and what to change."""

__version__ = "0.1.0"

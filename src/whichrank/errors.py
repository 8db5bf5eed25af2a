"""Errors that are the user's to solve. `__main__` catches them once and prints their text; nobody sees a traceback."""

from __future__ import annotations


class UsageProblem(Exception):
    """Wrong arguments, or nothing to work on. The text says what and, where it can, what to do instead."""

"""Names that come from a user's files, made safe to print: no control characters, no invisible ones."""

from __future__ import annotations

import unicodedata


def clean(text: str) -> str:
    """Only what can be seen; line ends and tabs become spaces.

    >>> clean("my\\x1b[31mmodel\\n")
    'my[31mmodel '
    """
    if text.isascii() and text.isprintable():
        return text
    kept = (" " if character in "\n\r\t" else character for character in text)
    return "".join(character for character in kept if not unicodedata.category(character).startswith("C"))

"""Measures of an evaluation."""

import math
import re


def exact_matches(texts, wanted):
    return sum(normalized(text) == normalized(other) for text, other in zip(texts, wanted, strict=True))


def normalized(text):
    return re.sub(r"\s+$", "", text.lower())


def ways(drawn, of):
    """How many draws there are, for the exact test."""
    return math.comb(of, drawn)

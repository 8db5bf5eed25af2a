"""What is remembered of a line is remembered for all lines of its shape, so it must not depend on which came first."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from reading import essence

from whichrank.evidence import readers, scanner
from whichrank.evidence.anchors import Words
from whichrank.evidence.envelope import Part
from whichrank.evidence.scan import ENOUGH, Line, Reader, Recipe, Scanner
from whichrank.facts import Source

CASES = Path(__file__).parents[1] / "cases" / "public"


class Exact:
    """A sieve that names no anchor too many."""

    def __init__(self, anchors: Iterable[bytes]) -> None:
        self.anchors = frozenset(anchors)

    def present(self, text: bytes) -> set[bytes]:
        return {anchor for anchor in self.anchors if anchor in text}


# Anchors of the readers between what stands for numbers, and what may be taken for a part of one.
NUMBERED = sorted(anchor for anchor in scanner().anchors if re.search(r"[\d#]", anchor))
PIECES = st.one_of(
    st.sampled_from(NUMBERED),
    st.sampled_from(sorted(scanner().anchors)),
    st.sampled_from(["#", "0x", "x", "a1b", " ", ": ", "[rank", "]"]),
)
NUMBERS = st.integers(0, 10**12).map(str) | st.integers(0, 10**12).map(hex)


def rows(recipe: Recipe) -> object:
    return [(entry.name, entry.line) for entry in recipe.lines], recipe.blocks


def facts(scanner: Scanner, lines: list[str]) -> list[tuple[object, ...]]:
    return [essence(fact) for fact in scanner.scan(Part(lines), Source("train.log"))[0]]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(PIECES, NUMBERS, NUMBERS), min_size=1, max_size=4))
def test_a_recipe_does_not_depend_on_which_line_of_a_shape_came_first(pieces: list[tuple[str, str, str]]) -> None:
    one = "".join(piece + number for piece, number, _ in pieces)
    other = "".join(piece + number for piece, _, number in pieces)
    recipes = [Scanner(readers(), sieve).recipe(line) for sieve in (Words, Exact) for line in (one, other)]

    assume(len({recipe.shape for recipe in recipes}) == 1)
    assert all(rows(recipe) == rows(recipes[0]) for recipe in recipes)


@settings(max_examples=60, deadline=None)
@given(st.permutations(["exit code 1 of 7", "exit code 137 of 80", "exit code 1234 of 0x7f", "exit code # of 1"]))
def test_every_order_and_every_sieve_has_the_same_facts(lines: list[str]) -> None:
    reader = Reader("test", (Line("exit", "code 137", r"exit code (?P<exitcode>\d+) of"), Line("oom", "e #", r"e #")))

    for sieve in (Words, Exact):
        found = facts(Scanner((reader,), sieve), lines)
        assert sorted(found) == sorted(facts(Scanner((reader,)), sorted(lines)))
        assert len(found) == 4


def test_both_sieves_find_the_same_in_every_case() -> None:
    words, exact = Scanner(readers()), Scanner(readers(), Exact)
    for path in sorted(CASES.rglob("*.log"))[:40]:
        lines = path.read_text(errors="replace").split("\n")
        assert facts(words, lines) == facts(exact, lines), path


@pytest.mark.parametrize(
    ("pattern", "others", "line"),
    [
        (r"(?P<count>[1-9]\d*) errors", "0 errors", "3 errors"),
        (r"waited (?P<seconds>\d{2,}) s for errors", "waited 5 s for errors", "waited 50 s for errors"),
        (r"code (?P<code>\d{3}): errors", "code 7: errors", "code 137: errors"),
    ],
)
def test_a_pattern_that_looks_at_digits_is_never_given_up(pattern: str, others: str, line: str) -> None:
    reader = Reader("test", (Line("counted", "errors", pattern),))

    assert len(facts(Scanner((reader,)), [others] * (ENOUGH + 5) + [line])) == 1

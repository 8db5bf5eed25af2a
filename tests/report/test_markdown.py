"""Markdown for GitHub: readable, and inert whatever a log holds."""

from __future__ import annotations

import re

import golden
import pytest
import samples
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from whichrank.report import markdown

GITHUB = MarkdownIt("commonmark", {"html": True}).enable("table")


@pytest.mark.parametrize("name", [*samples.SAMPLES, "hostile"])
def test_pages_of_markdown(name: str) -> None:
    golden.check(f"{name}.md", markdown.render(getattr(samples, name)()))


def test_markdown_with_everything() -> None:
    golden.check("oom-all.md", markdown.render(samples.oom(), all=True))


def test_the_verdict_is_a_short_list_before_the_proof() -> None:
    text = markdown.render(samples.oom())
    before = text.split("<details>")[0]

    assert "- cause: `host_oom` (proven)" in before
    assert "- rank: 17 on node-03 (proven)" in before
    assert "```sh\n  sbatch" in before
    assert "| culprit | 17 | node-03 |" in before
    assert len(before.splitlines()) < 20


@pytest.mark.parametrize("all", [False, True])
def test_hostile_text_makes_no_html_links_or_mentions(all: bool) -> None:
    tokens = GITHUB.parse(markdown.render(samples.hostile(), all=all))
    blocks = [token.content.strip() for token in tokens if token.type == "html_block"]
    inner = [child for token in tokens for child in token.children or []]

    assert all_of_ours(blocks)
    assert not [child for child in inner if child.type in ("html_inline", "link_open", "image")]
    told = " ".join(child.content for child in inner if child.type == "text")
    assert "@everyone" not in told
    assert not re.search(r"#\d", told)
    assert not re.search(r":boom:|http://", told)


def all_of_ours(blocks: list[str]) -> bool:
    return all(re.fullmatch(r"</details>|<details><summary>[\w ()]+</summary>", block) for block in blocks)


def test_raw_lines_stay_in_their_fences() -> None:
    tokens = GITHUB.parse(markdown.render(samples.hostile()))
    fences = [token.content for token in tokens if token.type == "fence"]

    assert any("Excerpt red [bold]markup[/bold]" in text and "</details>" in text for text in fences)


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=80))
def test_inline_text_reads_as_it_was(text: str) -> None:
    """Whatever the text, its rendering holds no markup but code."""
    tokens = GITHUB.parseInline(markdown.inline("x " + text + " x"))[0].children or []

    assert {token.type for token in tokens} <= {"text", "code_inline", "text_special"}


@given(st.lists(st.text("`~ab \n", max_size=20), min_size=1, max_size=4))
def test_a_fence_is_one_block(lines: list[str]) -> None:
    tokens = GITHUB.parse("\n".join(markdown.fenced(lines)) + "\n\nafter\n")

    assert [token.type for token in tokens] == ["fence", "paragraph_open", "inline", "paragraph_close"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("host_oom in train.py:212", "host_oom in train.py:212"),
        ("waited in ALLREDUCE #1842.", "waited in `ALLREDUCE #1842`."),
        ("a*b <c> [d] _e_ f_g", r"a\*b \<c\> \[d\] \_e\_ f_g"),
        ("take it out of the `if` at x", "take it out of the `if` at x"),
        ("one ` alone", r"one \` alone"),
        ("see https://x.test/a?b", "see `https://x.test/a?b`"),
        ("mail a@b.c or @team", "mail `a@b.c` or `@team`"),
        ("$HOME and R&D &amp;", r"\$HOME and R&D \&amp;"),
        ("at 05:12:44Z", "at 05:12:44Z"),
    ],
)
def test_inline(text: str, shown: str) -> None:
    assert markdown.inline(text) == shown

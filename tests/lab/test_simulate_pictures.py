"""Pictures of a simulated incident, from its files to what is on them."""

from __future__ import annotations

from pathlib import Path

from lab.simulate import incident
from lab.simulate.draw import Wishes

from whichrank.__main__ import run


def test_dumps_of_a_simulated_job(tmp_path: Path) -> None:
    """A rank that is stuck in its own code, 8 ranks, with stacks: named on both, and redacted in both."""
    made = incident.make(7, 0, Wishes(kinds=("host_stuck",), worlds=(8,), version="2.10", frames="python", missing=0.0))
    made.write(tmp_path / "dumps")
    culprit = made.truth["culprits"][0]
    page, trace = tmp_path / "hang.html", tmp_path / "hang.json"
    files = ["--html", str(page), "--perfetto", str(trace)]
    run([str(tmp_path / "dumps"), *files])
    text = page.read_text(encoding="utf-8")
    assert f"Rank {culprit}" in text and "/workspace/" in text and "<canvas" in text
    assert f"rank {culprit} (culprit)" in trace.read_text(encoding="utf-8")
    run([str(tmp_path / "dumps"), "--redact", *files])
    assert "/workspace/" not in page.read_text(encoding="utf-8")
    assert "/workspace/" not in trace.read_text(encoding="utf-8")

"""Tests here share asking.py; some import from docs/ and bench/, which are no packages."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path += [str(Path(__file__).parent), str(ROOT / "docs"), str(ROOT / "bench")]

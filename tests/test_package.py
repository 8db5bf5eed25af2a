"""The installed package is the one that pyproject.toml describes."""

import re
import subprocess
import sys
from pathlib import Path

PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"


def test_version_is_that_of_pyproject() -> None:
    declared = re.search(r'^version = "(.+)"$', PYPROJECT.read_text(encoding="utf-8"), re.MULTILINE)
    assert declared

    shown = subprocess.run(
        [sys.executable, "-m", "whichrank", "--version"], capture_output=True, text=True, check=True, timeout=60
    )

    assert declared[1] in shown.stdout.replace(",", " ").split()

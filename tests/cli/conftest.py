"""The sample reports are those of tests/report."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "report"))

"""Tests see what a reader raises: in use it is a gap in the report."""

import os
import sys
from pathlib import Path

from hypothesis import settings

os.environ["WHICHRANK_DEBUG"] = "1"
# A busy machine is no failure: how fast a reader is, bench/ measures.
settings.register_profile("whichrank", deadline=None)
settings.load_profile("whichrank")
sys.path.append(str(Path(__file__).parent / "report"))  # the tests of the command line use its sample reports

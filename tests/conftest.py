"""Tests see what a reader raises: in use it is a gap in the report."""

import os

os.environ["WHICHRANK_DEBUG"] = "1"

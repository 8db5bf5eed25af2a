"""Tests see what a reader raises: in use it is a gap in the report.

With WHICHRANK_QUICK=1, as on the second and further Pythons in CI, properties try fewer examples, tests that go through
very many cases (marked `many`) take every sixth of them, and each of these Pythons takes another third of all tests.
"""

import os
import sys

import pytest
from hypothesis import settings

os.environ["WHICHRANK_DEBUG"] = "1"
QUICK = os.environ.get("WHICHRANK_QUICK") == "1"
THIRD = {10: 0, 12: 1, 13: 2}.get(sys.version_info.minor, 0)
# A busy machine is no failure: how fast a reader is, bench/ measures.
settings.register_profile("whichrank", deadline=None, max_examples=15 if QUICK else 100)
settings.load_profile("whichrank")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if QUICK:
        many = [item for item in items if item.get_closest_marker("many")]
        left_out = {id(item) for number, item in enumerate(many) if number % 6}
        config.hook.pytest_deselected(items=[item for item in items if id(item) in left_out])
        items[:] = [item for item in items if id(item) not in left_out]
        config.hook.pytest_deselected(items=[item for number, item in enumerate(items) if number % 3 != THIRD])
        items[:] = items[THIRD::3]

"""The answer as JSON. schema.json beside this module describes it; docs/preflight.md says what it means."""

from __future__ import annotations

import json
from dataclasses import asdict

from whichrank.preflight.answer import SCHEMA_VERSION, Answer


def render(answer: Answer) -> bytes:
    told = {
        "schema_version": SCHEMA_VERSION,
        "answer": "go" if answer.go else "no-go",
        "seconds": answer.seconds,
        "world_size": answer.world,
        "launcher": answer.launcher,
        "master": answer.master,
        "backend": answer.backend,
        "findings": [asdict(finding) for finding in answer.findings],
        "checks": [asdict(check) for check in answer.checks],
        "ranks": answer.ranks,
        "nodes": answer.nodes,
        "pairs": answer.pairs,
        "collective": answer.collective,
        "storage": answer.storage,
    }
    return (json.dumps(told, indent=1) + "\n").encode()

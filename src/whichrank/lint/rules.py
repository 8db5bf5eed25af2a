"""The rules: code, name, what is wrong, what to change."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rule:
    """says: a sentence with {name} (the call) and {why} (whose own state). fix: what to change."""

    code: str
    name: str
    says: str
    fix: str
    title: str = ""
    sample: str = ""
    instead: str = ""
    quiet: str = ""


RULES = (
    Rule("WR101", "collective-under-rank", "only some ranks come to {name}: it is under a condition on the rank", "call it on all ranks"),
    Rule("WR102", "barrier-under-rank", "only some ranks come to {name}: it is under a condition on the rank", "move it out"),
    Rule("WR103", "collective-under-data", "ranks may disagree whether they come to {name}: {why} decides", "agree first"),
    Rule("WR104", "exit-before-collective", "{name}: {why} decides, and the other ranks go on to a collective", "agree first"),
    Rule("WR105", "exception-skips-collective", "a rank that goes on after an error here leaves {name} out", "raise"),
    Rule("WR106", "save-without-barrier", "the other ranks don't wait", "barrier"),
    Rule("WR107", "uneven-batches", "ranks have unequal numbers of batches, and each takes part in {name}", "join"),
    Rule("WR108", "p2p-unpaired", "{name}", "pair"),
    Rule("WR109", "handle-not-waited", "nobody waits for {name}", "wait"),
    Rule("WR201", "no-timeout", "init_process_group without a timeout", "timeout"),
    Rule("WR202", "reentrant-unset", "{name} without use_reentrant", "set it"),
    Rule("WR203", "cache-with-checkpointing", "use_cache is on", "off"),
)
BY_NAME = {rule.name: rule for rule in RULES}
BY_CODE = {rule.code: rule for rule in RULES}

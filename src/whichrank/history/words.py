"""Patterns in plain words: what they mean, and what to do next."""

from __future__ import annotations

from whichrank.history.why import FEWEST, SURE, Findings, Pattern
from whichrank.report.printable import many

MEANS = {
    "node": "{name} itself is the suspect: incidents follow it wherever the job puts it",
    "gpu": "{name} is the suspect: incidents follow it wherever the job puts it",
    "rank": "{name} is what is alike, on whichever node it runs: it is the work of that rank, not a machine",
    "place": "the {name} is what is alike, whichever node that is: its part of the model or of the data, not a machine",
    "local_rank": "{name} is what is alike, on different nodes: what the nodes have in common there, or how the job uses it",
    "role": "{name} is what is alike, on whichever node it runs: it is that role's work, not a machine",
    "domain": "what the nodes of {name} share is the suspect (switch, power, cooling), not one of them",
    "shard": "{name} is what is alike, whoever reads it: the data is the suspect, not ranks or nodes",
    "sample": "{name} is what is alike, whoever reads it: the data is the suspect, not ranks or nodes",
    "step": "the runs stop at {name}, on whichever node: the data of that step, or code that runs then, is the suspect",
    "burst": "unrelated runs on different nodes fail within the same minutes: something that they share is the suspect",
    "window": "runs fail {name} on different days and nodes: something shared that happens then is the suspect",
    "service": "runs on different nodes wait for {name}: that service is the suspect, not ranks or nodes",
    "site": "different nodes and ranks fail at {name}: the software there is the suspect, not a machine",
}
NEXT = {
    "node": "Drain {name} and test it before it gets work again; restart without it.",
    "gpu": "Drain {host} and test {name} before it gets work again; restart without that node.",
    "rank": "Look at what {name} alone does: its data, its part of the model, extra work such as saving or evaluating. Keep the nodes.",
    "place": "Look at what the ranks there have to themselves: pipeline stage, data shards, extra work. Keep the nodes.",
    "local_rank": "Look at what {name} has to itself on a node: its GPU's link, its NIC, its CPUs (`nvidia-smi topo -m`), how the job binds it.",
    "role": "Look at what {name} alone does: its part of the model, its data, extra work. Keep the nodes.",
    "domain": "Have the switch, power and cooling of {name} checked; until then place the job elsewhere.",
    "shard": "Skip {name}, or read and check it by itself; then resume. Keep the nodes.",
    "sample": "Skip {name}, or read and decode it by itself; then resume. Keep the nodes.",
    "step": "Replay the batches of {name} with the same seed, or skip them; then look at what runs at that step (evaluation, saving, a schedule). Keep the nodes.",
    "burst": "Give these times to whoever runs storage, fabric and scheduler, and review their events. Keep the nodes.",
    "window": "Find what runs {name} on the storage or fabric (backup, scrub, snapshots, cron, another team's job) and move or bound it. Keep the nodes.",
    "service": "Review {name} with whoever runs it; in the job, retries with a bound and local staging. Keep the nodes.",
    "site": "Reproduce it at {name} on other nodes; fix the software. Keep the nodes.",
}
TITLE = {
    **dict.fromkeys(("shard", "sample"), "{name} was being read in {share}"),
    "step": "{share} stop at {name}",
    "burst": "{share} come in {name}",
    "window": "{share} come from {name}",
    "service": "{share} wait for {name}",
    "site": "{share} fail at {name}",
}
ROTATE = "Restart with the ranks rotated over the same nodes, or with {node} swapped: if it follows the machine it is {physical}, if it stays with the rank it is {logical}."


def title(pattern: Pattern, found: Findings) -> str:
    """The shortest that says it."""
    share = f"{pattern.hits:,} of {many(found.incidents, 'incident')}"
    if pattern.confounded:
        text = f"{' or '.join((pattern.name, *pattern.confounded))} is behind {share}: these runs cannot tell which"
    else:
        text = TITLE.get(pattern.kind, "{name} is behind {share}").format(name=pattern.name, share=share)
    return text[0].upper() + text[1:] if pattern.kind in ("rank", "place", "local_rank", "role", "domain") else text


def nothing_title(found: Findings) -> str:
    return nothing(found) if found.incidents < FEWEST else "Nothing repeats more than chance explains"


def says(pattern: Pattern, found: Findings) -> str:
    """One sentence: the count, and what it means."""
    share = f"{pattern.hits} of {many(found.incidents, 'incident')}"
    if pattern.family:
        share += f" (of the {pattern.of} that are {pattern.family.replace('_', ' ')} and could have)"
    chance = f"{pattern.expected:.1f}" if pattern.expected < 10 else f"{pattern.expected:.0f}"
    if pattern.confounded:
        others = " and ".join(pattern.confounded)
        return f"{share}: {pattern.name}, which is {others} in all of these runs; chance would give {chance}. The placement never told them apart."
    means = MEANS[pattern.kind].format(name=_name(pattern))
    return f"{share}, where chance would give {chance}: {means}."


def action(pattern: Pattern) -> str:
    """The next thing to do."""
    if pattern.posterior < SURE and not pattern.confounded:
        return f"{_action(pattern)} It is likely, not sure: keep the next diagnoses too (`whichrank LOGS --history`)."
    return _action(pattern)


def _action(pattern: Pattern) -> str:
    if pattern.confounded:
        physical = pattern.name if pattern.kind in ("node", "gpu", "domain") else pattern.confounded[0]
        logical = pattern.confounded[0] if physical == pattern.name else pattern.name
        return ROTATE.format(node=_host(physical), physical=physical, logical=logical)
    return NEXT[pattern.kind].format(name=_name(pattern), host=_host(pattern.name))


def commands(pattern: Pattern) -> tuple[str, ...]:
    """What to type, where there is something."""
    if pattern.confounded or pattern.kind not in ("node", "gpu"):
        return ()
    host = _host(pattern.name)
    return (f"scontrol update nodename={host} state=drain reason='repeat offender'", f"ssh {host} dcgmi diag -r 3")


def _name(pattern: Pattern) -> str:
    return f"from {pattern.name}" if pattern.kind == "window" else pattern.name


def _host(name: str) -> str:
    return name.rpartition(" of ")[2]


def nothing(found: Findings) -> str:
    """Why there is no answer."""
    if found.incidents < FEWEST:
        return f"{many(found.incidents, 'incident')}: too few to compare; three are the least."
    text = f"Nothing repeats more than chance explains in {many(found.incidents, 'incident')}"
    if found.top_host and found.top_hits > 1 and found.repeats_by_chance >= 0.05:
        text += (
            f": {found.top_hits} times on {found.top_host} is what chance alone does in "
            f"{found.repeats_by_chance:.0%} of such histories"
        )
    best = found.weighed[0] if found.weighed else None
    if best is not None and best.posterior >= 0.3:
        text += f"; the nearest is {best.name} ({best.posterior:.0%})"
    return f"{text}. Undecided."


def wanted(found: Findings) -> str:
    """What would help where there is no answer."""
    if found.incidents < FEWEST:
        return "Keep every diagnosis: `whichrank LOGS --history`."
    if not found.placed:
        return (
            "Placements are missing: which rank ran where (`srun -l hostname`, a host file) tells a node from a rank."
        )
    return "Keep all nodes. Keep every diagnosis (`whichrank LOGS --history`), of healthy runs too, and vary the placement: each further incident tells more."

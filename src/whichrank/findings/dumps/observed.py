"""What dumps at hand cannot show: said where it bears on the answer, so that silence is not taken for an absence."""

from __future__ import annotations

from whichrank.findings.dumps.calls import generated
from whichrank.findings.dumps.trace import Traced
from whichrank.job.collectives import Collectives


def limits(table: Collectives, traced: Traced) -> tuple[str, ...]:
    """The limits that matter for this conclusion, the weightiest first."""
    found: list[str] = []
    if traced.mechanism == "no_hang":
        return ()
    if traced.pause:
        found.append(
            "dumps do not say for how long it was waited: rank 0 may be at work of its own, such as a checkpoint, and come"
        )
    if traced.fresh:
        found.append(
            "the dumps were written less than two seconds after these calls were made: a pause of a healthy job looks the "
            "same. Take them again a minute later"
        )
    if len(table.missing) > len(table.rings):
        found.append(f"only {len(table.rings)} of {table.world} dumps are here: who did not come stands in the others")
    open_ended = not traced.culprits
    if (
        table.backend != "gloo"
        and not table.start_events
        and open_ended
        and traced.mechanism in ("undecided", "network")
    ):
        found.append(
            "NCCL's recorder keeps no starts unless TORCH_NCCL_ENABLE_TIMING is set: a call that runs and one whose "
            "kernel never began look the same"
        )
    if table.backend == "gloo":
        found.append(
            "gloo records no sends and receives, and a call that failed looks like one that succeeded: what cannot have "
            "succeeded is taken as unfinished"
        )
    if any(group.inferred for group in table.groups):
        found.append(
            "this format does not list the members of groups: they follow from the regular layouts that fit how the ranks "
            "use them"
        )
    elif any(group.own for group in table.groups):
        found.append("this format does not list the members of groups: only the default group is known on all ranks")
    if any(ring.active_only for ring in table.rings.values()):
        found.append("only unfinished calls were dumped: what was called before is not to be seen")
    if traced.departure is not None and not table.frames:
        found.append("there are no stacks in these dumps: calls are told apart by operation, shape and type alone")
    elif traced.departure is not None and _generated(table):
        found.append(
            "some calls come from generated code (torch.compile) or from C++: their stacks name no line of yours"
        )
    if traced.departure is None and traced.mechanism == "undecided" and _overflowed(table):
        found.append("the rings are full: calls from before their first entries are not to be seen")
    return tuple(found)


def _generated(table: Collectives) -> bool:
    return any(
        generated(frame.file) for ring in table.rings.values() for site in ring.dump.sites[:50] for frame in site[:1]
    )


def _overflowed(table: Collectives) -> bool:
    return any(ring.dump.overflowed for ring in table.rings.values())

"""version_mismatch: the nodes run different software, or software that does not fit the driver."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from whichrank.causes.base import Cause, Clue, own_failure
from whichrank.facts import Fact, Said
from whichrank.findings import Findings
from whichrank.job.model import Job
from whichrank.model import Check, Mechanism

_ONLY_CHANGED = re.compile(
    r"\bonly (?:the )?(?:\w+[ -]){0,3}(?:image|driver|version|container|package|librar|toolkit|nccl|cuda|torch|firmware|kernel|ofed)\w*[^.]{0,20}(?:changed|differs?|new|updated|upgraded)|"
    r"(?:after|since) (?:the )?(?:upgrad|updat|new)\w*[^.]{0,60}|(?:work(?:s|ed)|ran|runs|ok|fine) (?:\w+ ){0,3}with (?:the )?(?:old|previous|older)|back to \S+ works|(?:downgrad|revert|roll(?:ed)? back)\w*[^.]{0,40}(?:works|worked|helps|fixed|fine|ok)",
    re.I,
)
_VERSION = re.compile(
    r"\b(torch|nccl|cuda|driver|ofed|firmware|image|container|transformers|deepspeed|python|libfabric|rccl|rocm|aws-ofi-nccl)\b[\w .:=+/-]{0,24}?(\d+\.\d+(?:\.\d+)?)",
    re.I,
)


def weigh(job: Job, found: Findings) -> Iterator[Clue]:
    for fact in job.of("nccl_mismatch"):
        yield Clue(
            7.5,
            "transport",
            f"NCCL itself reports a mismatch: {fact.spot.excerpt[-120:]}",
            (fact,),
            (),
            (fact.who.host,) if fact.who.host else (),
            decisive=True,
            mechanism="dead" if not found.arrived.waits else "network",
        )
        break
    for kind, name, weight in (("net_plugin", "network plugin", 4.5), ("nccl_version", "NCCL version", 5.0)):
        by_host = _by_host(job, kind)
        values = {value for value, _ in by_host.values()}
        if len(values) > 1:
            chosen = dict(by_host.values())
            apart = kind == "nccl_version" and unlike(values) and failed_in_setup(job, found)
            yield Clue(
                6.0 if apart else weight,
                "setup",
                f"the hosts use different {name}s: "
                + ", ".join(f"{host}: {value}" for host, (value, _) in sorted(by_host.items())[:4]),
                tuple(chosen.values())[:3],
                hosts=odd_hosts({host: value for host, (value, _) in by_host.items()}),
                mechanism=_mechanism(job, found),
            )
            break
    yield from _installed(job, found)
    networks = _by_host(job, "net_using")
    kinds = {value for value, _ in networks.values()}
    if len(kinds) > 1 and any(
        "ext" in value.lower() or value.lower() not in ("ib", "socket", "roce") for value in kinds
    ):
        chosen = dict(networks.values())
        yield Clue(
            2.0,
            "transport",
            "the hosts chose different network implementations: "
            + ", ".join(f"{host}: {value}" for host, (value, _) in sorted(networks.items())[:4]),
            tuple(chosen.values())[:3],
        )
    note = _note(job)
    if note is not None and (found.arrived.waits or job.of("nccl_error", "init_start", "exception")):
        early = _first_call(found) and not found.beats
        weight = 3.8 if found.arrived.everyone_waited and early else 2.5 if early or not found.beats else 1.0
        yield Clue(
            weight,
            "settings",
            "the people who ran it changed only the software between a run that works and this one",
            (note,),
            mechanism="network" if found.arrived.waits else None,
        )
    if found.failed.first is not None and found.failed.first.kind in ("killed", "cuda_oom"):
        yield from own_failure(found, -3.0)


_MUST_FIT = {"torch": 3.0, "nccl": 3.0}  # they talk to each other; the rest may differ and work
_MAY_DIFFER = 1.0


def _installed(job: Job, found: Findings) -> Iterator[Clue]:
    """Versions that people listed on the nodes. Where training went on for long they fitted well enough."""
    versions = sorted(found.setup.versions, key=lambda differing: -_MUST_FIT.get(differing.what, _MAY_DIFFER))
    pulse = [beat for beat in found.beats if beat.trains]
    trained = any(beat.count >= 10 for beat in pulse)
    first = not pulse and _first_call(found)
    taking_part = _taking_part(job)
    for differing in versions[:1]:
        weight = _MUST_FIT.get(differing.what, _MAY_DIFFER)
        weight = weight + 1.5 if first and weight > _MAY_DIFFER else weight  # they never talked to each other
        values = {host: value for host, value in differing.by_host.items() if host in taking_part}
        if differing.what in _MUST_FIT and unlike(values.values()) and failed_in_setup(job, found):
            weight = 6.0
        yield Clue(
            min(weight, 0.5) if trained else weight,
            "setup",
            f"the hosts have different versions of {differing.what}: {differing.says}",
            differing.facts[:3],
            hosts=odd_hosts(values or differing.by_host),
            mechanism=_mechanism(job, found),
        )
    if found.setup.equal and not found.setup.versions:
        one = found.setup.equal[0]
        yield Clue(-2.0, "setup", f"{one['what']} is {one['value']} on every host that was asked", found.setup.equal)


def unlike(values: Iterable[str]) -> bool:
    """Do versions differ in more than the last place? NCCL and torch promise nothing over such a difference."""
    return len({tuple(re.findall(r"\d+", value)[:2]) for value in values}) > 1


def odd_hosts(by_host: dict[str, str]) -> tuple[str, ...]:
    """The hosts whose version most of the others do not have; none where there is no such majority."""
    tally = Counter(by_host.values())
    if not tally:
        return ()
    common, count = tally.most_common(1)[0]
    return tuple(host for host, value in by_host.items() if value != common) if 2 * count > len(by_host) else ()


def failed_in_setup(job: Job, found: Findings) -> bool:
    """NCCL or c10d gave up before the first step: connecting, exchanging ids, the first collective."""
    if any(beat.trains for beat in found.beats) or job.of("init_complete"):
        return False
    early = bool(found.arrived.waits) and _first_call(found)
    return early or bool(job.of("nccl_error", "connect_failed", "connect_timeout", "peer_closed", "store_timeout"))


def _first_call(found: Findings) -> bool:
    """Who waited did so in the first collective, as far as that is known."""
    return all(wait.seq in (0, 1, None) for wait in found.arrived.waits)


def _mechanism(job: Job, found: Findings) -> Mechanism:
    """Without a wait, a process that raised is gone: it does not hang in the network."""
    raised = bool(found.failed.roots) or any(not fact["caught"] for fact in job.of("exception"))
    return "network" if found.arrived.waits or not raised else "dead"


def _taking_part(job: Job) -> set[str]:
    """Hosts of which more is known than what is installed there."""
    return {fact.who.host for fact in job.facts if fact.kind not in ("version", "disk", "config") and fact.who.host}


def _by_host(job: Job, kind: str) -> dict[str, tuple[str, Fact]]:
    seen: dict[str, dict[str, Fact]] = defaultdict(dict)
    for fact in job.of(kind):
        value = str(fact["plugin"] or fact["version"] or fact["transport"] or "").strip()
        if fact.who.host and value:
            seen[fact.who.host].setdefault(value, fact)
    # A host that shows several values (probing one plugin after the other) says what it took in the last.
    return {host: list(values.items())[-1] for host, values in seen.items()}


def _note(job: Job) -> Said | None:
    """A person's own words that only software changed."""
    for line in job.saying(_ONLY_CHANGED):
        if line.spot.source.kind == "note" and (
            _VERSION.search(line.text) or re.search(r"image|driver|version|container|nccl|cuda|torch", line.text, re.I)
        ):
            return line
    return None


CAUSE = Cause(
    id="version_mismatch",
    title="software that does not fit together",
    means="Nodes run different versions of NCCL, its network plugin, the driver or the container, or an image that does not fit the installed driver; they talk past each other.",
    looks_like="Mismatched NCCL version, another network plugin on some hosts, a failure that came with a new image and goes with the old one.",
    settles=(
        Check(
            "the versions on every node",
            "srun -l bash -c 'nvidia-smi --query-gpu=driver_version --format=csv,noheader | head -1; python -c \"import torch; print(torch.__version__, torch.version.cuda, torch.cuda.nccl.version())\"; echo $LD_LIBRARY_PATH'",
        ),
        Check(
            "which plugin NCCL loads",
            "export NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET   # then compare 'NET/Plugin' and 'Using network' over the nodes",
        ),
    ),
    fix=(
        "One image with one NCCL, one network plugin and one driver branch for all nodes; check it before the job starts.",
    ),
    stopgap="Go back to the image or driver that worked, or keep to the nodes that have the same.",
    weigh=weigh,
    prior=-2.2,
    mechanism="network",
    blames_ranks=False,
    verb="the nodes' software does not fit together",
    dont="exchange cables: the hardware is not shown to be at fault",
)

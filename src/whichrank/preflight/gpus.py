"""GPUs of a node, where there are any: are all there, joined alike, free of errors, and at full clock?

`nvidia-smi` (drivers 450 to 580) and the kernel's log, through the readers of evidence. Asked once for each node.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from whichrank.preflight import limits
from whichrank.preflight.answer import Finding
from whichrank.preflight.roster import Roster

SECONDS = 8.0  # for each question: nvidia-smi may hang with the driver
FIELDS = "index,name,pci.bus_id,memory.total,memory.used,ecc.errors.uncorrected.volatile.total,temperature.gpu"
REASONS = ("clocks_event_reasons.active", "clocks_throttle_reasons.active")  # the name until driver 535
HARDWARE = {0x8: "hardware slowdown", 0x40: "too hot", 0x80: "power brake"}  # NVML, nvmlClocksEventReasons
USED = 2048  # MiB in use before the job has begun: somebody else's
RECENT = 86400.0  # seconds: an Xid after which nobody will have repaired anything
Told = Mapping[str, Mapping[str, Any]]  # node -> what look() found


def look() -> dict[str, Any]:
    """In the first rank of a node. {} where there is no GPU."""
    present = len(list(Path("/proc/driver/nvidia/gpus").glob("*")))
    table = limits.command(["nvidia-smi", f"--query-gpu={FIELDS}", "--format=csv,noheader,nounits"], SECONDS)
    if table is None:
        return {"present": present, "silent": True} if present else {}
    gpus = [
        dict(zip(FIELDS.split(","), map(str.strip, line.split(",")), strict=False))
        for line in table.splitlines()
        if line.strip()
    ]
    throttled = _throttled()
    for gpu in gpus:
        gpu["throttled"] = throttled.get(gpu["index"], "")
    return {
        "present": max(present, len(gpus)),
        "gpus": gpus,
        "topology": _topology(),
        "p2p": _p2p(limits.command(["nvidia-smi", "topo", "-p2p", "r"], SECONDS) or ""),
        "xids": xids(limits.command(["dmesg"], SECONDS) or "", _uptime()),
    }


def _throttled() -> dict[str, str]:
    """Index of a GPU -> why the hardware slows it down; nothing for the others."""
    for name in REASONS:
        told = limits.command(["nvidia-smi", f"--query-gpu=index,{name}", "--format=csv,noheader,nounits"], SECONDS)
        if told and "0x" in told:
            found = {}
            for line in told.splitlines():
                index, _, mask = line.partition(",")
                bits = int(mask.strip(), 16) if re.fullmatch(r"\s*0x[0-9a-fA-F]+\s*", mask) else 0
                if reasons := [text for bit, text in HARDWARE.items() if bits & bit]:
                    found[index.strip()] = ", ".join(reasons)
            return found
    return {}


def _topology() -> dict[str, Any] | None:
    from whichrank.evidence.gpu_topology import READER
    from whichrank.evidence.sample import facts

    text = limits.command(["nvidia-smi", "topo", "-m"], SECONDS)
    found = facts(READER, f"node$ nvidia-smi topo -m\n{text}") if text else []
    return {name: found[0][name] for name in ("gpus", "adapters", "nvlink_pairs", "links", "alone")} if found else None


def _p2p(text: str) -> list[str]:
    """Pairs that cannot read each other's memory.

    >>> _p2p(" \\tGPU0\\tGPU1\\n GPU0\\tX\\tOK\\n GPU1\\tCNS\\tX\\n")
    ['GPU1-GPU0 CNS']
    """
    columns: list[str] = []
    found = []
    for line in text.splitlines():
        words = line.split()
        if words and not columns and all(re.fullmatch(r"GPU\d+", word) for word in words):
            columns = words
        elif columns and words and words[0] in columns and len(words) == len(columns) + 1:
            found += [
                f"{words[0]}-{other} {word}"
                for other, word in zip(columns, words[1:], strict=True)
                if word not in ("X", "OK")
            ]
    return found


def _uptime() -> float | None:
    try:
        return float(Path("/proc/uptime").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return None


def xids(text: str, uptime: float | None) -> list[dict[str, Any]]:
    """Of the kernel's log: GPU, code, and how long ago, in seconds, where the log says."""
    if "Xid" not in text:
        return []
    from whichrank.evidence.kernel import READER
    from whichrank.evidence.sample import facts

    lines = [line for line in text.splitlines() if "Xid" in line][-500:]
    found = []
    for fact in facts(READER, "\n".join(lines)):
        if fact.kind == "xid":
            stamp = re.match(r"\[\s*(\d+\.\d+)\]", fact.spot.excerpt)
            ago = round(uptime - float(stamp[1])) if stamp and uptime is not None else None
            found.append({"gpu": fact.who.gpu or fact["gpu"], "code": fact["code"], "ago": ago})
    return found


def judge(told: Told, roster: Roster) -> list[Finding]:
    with_gpus = {node: one for node, one in told.items() if one}
    if not with_gpus:
        return []
    found = [finding for node, one in with_gpus.items() for finding in _of_node(node, one, roster)]
    return [*_alike(told, roster), *found]


def _finding(grade: Any, id: str, says: str, do: str, roster: Roster, node: str) -> Finding:
    return Finding("gpus", grade, id, says, do, (node,), tuple(roster.ranks_of(node)))


def _alike(told: Told, roster: Roster) -> Iterator[Finding]:
    for id, what, value in COMPARED:
        values = {node: value(one) for node, one in told.items() if not one.get("silent")}
        if len(set(values.values())) > 1:
            usual = Counter(values.values()).most_common(1)[0][0]
            for node, here in values.items():
                if here != usual:
                    yield _finding(
                        "stop", id, f"{node} has {here}; the others have {usual}.",
                        f"nvidia-smi -L and nvidia-smi topo -m on {node}; leave it out, or start as many ranks as it has {what}", roster, node,
                    )  # fmt: skip


def _count(one: Mapping[str, Any]) -> str:
    return f"{len(one.get('gpus', ()))} GPUs"


def _kind(one: Mapping[str, Any]) -> str:
    return ", ".join(sorted({gpu["name"] for gpu in one.get("gpus", ())})) or "none"


def _links(one: Mapping[str, Any]) -> str:
    return f"{(one.get('topology') or {}).get('nvlink_pairs', '?')} pairs joined by NVLink"


COMPARED = (("gpu_count", "GPUs", _count), ("gpu_kind", "kinds of GPU", _kind), ("gpu_links", "NVLinks", _links))


def _of_node(node: str, one: Mapping[str, Any], roster: Roster) -> Iterator[Finding]:
    if one.get("silent"):
        yield _finding(
            "stop", "gpu_silent", f"nvidia-smi on {node} gives no answer, though the driver knows {one['present']} GPUs.",
            f"dmesg | grep -i xid on {node}; restart it", roster, node,
        )  # fmt: skip
        return
    gpus: Sequence[Mapping[str, str]] = one["gpus"]
    if len(gpus) < one["present"]:
        yield _finding(
            "stop", "gpu_lost", f"nvidia-smi on {node} shows {len(gpus)} of {one['present']} GPUs.",
            f"dmesg | grep -i xid on {node}; restart it, replace the GPU if it stays away", roster, node,
        )  # fmt: skip
    ranks = len(roster.ranks_of(node))
    if ranks > len(gpus):
        yield _finding(
            "stop", "gpu_too_few", f"{ranks} ranks on {node}, and {len(gpus)} GPUs.",
            f"--nproc-per-node {len(gpus)}, or ask for more GPUs (Slurm: --gpus-per-node)", roster, node,
        )  # fmt: skip
    yield from _sick(node, gpus, roster)
    yield from _joined(node, one, roster)
    yield from _past(node, one["xids"], roster)


def _sick(node: str, gpus: Sequence[Mapping[str, str]], roster: Roster) -> Iterator[Finding]:
    for gpu in gpus:
        name = f"GPU {gpu.get('index')} of {node}"
        if gpu.get("ecc.errors.uncorrected.volatile.total", "0").isdecimal() and int(
            gpu.get("ecc.errors.uncorrected.volatile.total", 0)
        ):
            yield _finding(
                "stop", "gpu_ecc", f"{name} has {gpu['ecc.errors.uncorrected.volatile.total']} uncorrected memory errors since the driver was loaded.",
                f"reset it (nvidia-smi -i {gpu['index']} -r, nothing may use it) or leave {node} out; replace it if they come back", roster, node,
            )  # fmt: skip
        if gpu["throttled"]:
            yield _finding(
                "stop", "gpu_throttled", f"{name} is slowed down by hardware: {gpu['throttled']} ({gpu.get('temperature.gpu', '?')} C).",
                f"nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER on {node}: cooling, power supply; leave it out until then", roster, node,
            )  # fmt: skip
        used = gpu.get("memory.used", "0")
        if used.isdecimal() and int(used) > USED:
            yield _finding(
                "warn", "gpu_in_use", f"{name} has {int(used) / 1024:.0f} GiB in use before the job has begun.",
                f"nvidia-smi on {node}: end what is left of an earlier job (fuser -v /dev/nvidia*)", roster, node,
            )  # fmt: skip


def _joined(node: str, one: Mapping[str, Any], roster: Roster) -> Iterator[Finding]:
    topology = one["topology"]
    if topology and topology["alone"]:
        yield _finding(
            "stop", "gpu_alone", f"GPU {', '.join(map(str, topology['alone']))} of {node} has no NVLink, the others have.",
            f"nvidia-smi nvlink --status on {node}, systemctl status nvidia-fabricmanager", roster, node,
        )  # fmt: skip
    if one["p2p"]:
        yield _finding(
            "warn", "gpu_p2p", f"On {node} {len(one['p2p'])} pairs of GPUs cannot read each other's memory ({', '.join(one['p2p'][:3])}).",
            "ACS or IOMMU in the way (lspci -vvv | grep ACSCtl), or a kind of GPU without P2P; NCCL then goes through host memory", roster, node,
        )  # fmt: skip


def _past(node: str, past: Sequence[Mapping[str, Any]], roster: Roster) -> Iterator[Finding]:
    from whichrank.findings.hosts import HARD_XIDS
    from whichrank.report.explain_codes import XIDS

    latest = {(one["gpu"], one["code"]): one for one in past if one["code"] in HARD_XIDS}
    for (gpu, code), one in latest.items():
        meaning = XIDS[code].means.rstrip(".") if code in XIDS else "a fault of the GPU"
        ago = "" if one["ago"] is None else f", {one['ago'] / 3600:.1f} h ago" if one["ago"] >= 0 else ""
        recent = one["ago"] is not None and one["ago"] < RECENT
        yield _finding(
            "stop" if recent else "warn", "gpu_xid", f"Xid {code} on GPU {gpu} of {node} since boot{ago}: {meaning}.",
            XIDS[code].then if code in XIDS and XIDS[code].then else f"look it up: whichrank explain 'Xid {code}'", roster, node,
        )  # fmt: skip

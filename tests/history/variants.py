"""Six runs with one thing behind them, written as different sites leave their logs: for tests, made anew each time.

`KINDS`: what is behind them; `LAYOUTS`: how the folder looks. Sixteen ranks on four of twelve nodes, as in make_runs.py,
which has the lines; here are other storage, other data, other names, and one outage that hits all runs at once.
"""

from __future__ import annotations

import io
import random
import re
import tarfile
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from make_runs import (
    GPUS,
    Run,
    bug,
    ecc,
    gpu_lost,
    healthy_part,
    host_oom,
    nfs,
    slow_read,
    stamp,
    stuck,
    timeouts,
    traceback,
)

Files = dict[str, str]
HEX = "0123456789abcdef"


class Job(Run):
    """A run whose processes have ids of their own."""

    def pid(self, rank: int) -> int:
        return 2000 + int(self.name) * 7919 % 50_000 + 37 * rank


# --- what is wrong


def lustre(run: Run) -> None:
    at = run.at + timedelta(seconds=130)
    run.say(
        run.rank,
        run.at,
        f"[rank{run.rank}] {stamp(run.at)} INFO opening /lustre/corpus/c4-{run.dice.randint(0, 1023):05}-of-01024.parquet",
    )
    run.kern(run.host, at, f"Lustre: {run.dice.randint(2000, 9000)}:0:(client.c:2310:ptlrpc_expire_one_request()) @@@ Request sent has timed out for slow reply: [sent {int(at.timestamp()) - 100}/real {int(at.timestamp()) - 100}]  req@000000004f1c{run.dice.randint(1000, 9999)} x17{run.dice.randint(10**9, 10**10)}/t0(0) o3->scratch-OST0011-osc-ffff8f0d@10.60.1.17@o2ib:6/4 lens 488/440 e 0 to 1 dl {int(at.timestamp())} ref 2 fl Rpc:X/0/ffffffff rc 0/-1")  # fmt: skip
    run.kern(run.host, at, "Lustre: scratch-OST0011-osc-ffff8f0d2a1c3800: Connection to scratch-OST0011 (at 10.60.1.17@o2ib) was lost; in progress operations using this service will wait for recovery to complete")  # fmt: skip
    timeouts(run)


def blocked(run: Run) -> None:
    """A hung task in the file system: a kernel's report without the server's name."""
    slow_read(run)


TAR = "laion-part-00731.tar"


def bad_member_raises(run: Run) -> None:
    traceback(
        run, '  File "/home/mm/clip/train.py", line 301, in <module>', "    main()",
        '  File "/home/mm/clip/train.py", line 254, in main', "    for images, texts in loader:",
        '  File "/home/mm/clip/data.py", line 90, in decode', "    return Image.open(io.BytesIO(sample['jpg']))",
        f"PIL.UnidentifiedImageError: cannot identify image file <_io.BytesIO object at 0x7f{run.dice.randint(10**6, 10**7)}>: sample 007310442 of /data/laion/{TAR}",
    )  # fmt: skip


def bad_member_hangs(run: Run) -> None:
    run.say(run.rank, run.at, f"[rank{run.rank}] {stamp(run.at)} DEBUG data: /data/laion/{TAR} sample 007310442")
    timeouts(run)


DOCUMENT = "doc 88123417"


def bad_document_raises(run: Run) -> None:
    traceback(
        run, '  File "/opt/lm/pretrain.py", line 410, in <module>', "    main()",
        '  File "/opt/lm/pretrain.py", line 377, in main', "    batch = next(batches)",
        '  File "/opt/lm/tokens.py", line 52, in __next__', "    return torch.from_numpy(np.concatenate(parts))",
        f"ValueError: need at least one array to concatenate ({DOCUMENT})",
    )  # fmt: skip


def bad_document_hangs(run: Run) -> None:
    run.say(run.rank, run.at, f"[rank{run.rank}] {stamp(run.at)} INFO packing {DOCUMENT}")
    timeouts(run)


def nvlink(run: Run) -> None:
    run.kern(run.host, run.at, f"NVRM: Xid (PCI:0000:{run.gpu}:00): 74, pid={run.pid(run.rank)}, name=python, NVLink: fatal error detected on link 5(0x0, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0)")  # fmt: skip
    timeouts(run)


def falls(run: Run) -> None:
    """The GPU itself, whichever rank has it: the same UUID and bus in each run."""
    gpu_lost(run)


class Kind(NamedTuple):
    """faults: of each run; where: what the culprit is tied to; when: how the runs lie in time."""

    faults: tuple[Callable[[Run], None], ...]
    where: str
    when: str
    answers: tuple[str, ...]
    named: str


BAD = 6  # which of the twelve nodes
STRAY = 2  # which of the six runs may have failed for reasons of its own
KINDS = {
    "storage-nights": Kind((nfs, slow_read, nfs, stuck, slow_read, nfs), "anyone", "night", ("window", "burst", "service"), ""),
    "storage-outage": Kind((lustre, lustre, blocked, lustre, stuck, lustre), "anyone", "outage", ("burst", "window", "service"), ""),
    "storage-lustre": Kind((lustre, lustre, lustre, blocked, lustre, lustre), "anyone", "night", ("window", "burst", "service"), ""),
    "node": Kind((nvlink, stuck, ecc, host_oom, nvlink, stuck), "node", "anytime", ("node", "gpu"), "host"),
    "gpu": Kind((falls, ecc, falls, nvlink, falls, ecc), "gpu", "anytime", ("gpu", "node"), "host"),
    "sample-member": Kind((bad_member_raises, bad_member_hangs, bad_member_raises, bad_member_raises, bad_member_hangs, bad_member_hangs), "anyone", "anytime", ("shard", "sample"), "0073"),
    "sample-document": Kind((bad_document_raises, bad_document_raises, bad_document_hangs, bad_document_raises, bad_document_hangs, bad_document_raises), "anyone", "anytime", ("sample", "shard"), "88123417"),
}  # fmt: skip


# --- how the folder looks


def spelled(run: Run, host: str, layout: str) -> str:
    """The host as this rank's log has it."""
    if layout == "full-names" and run.dice.random() < 0.6:
        return f"{host}.hpc.example.edu"
    if layout == "pods":
        return f"{run.name}-worker-{run.nodes.index(host)}"
    return host


Lines = list[tuple[datetime, int, str]]  # when, which rank, what it printed


def lines_by(run: Run, layout: str, name: Callable[[int, str], str]) -> dict[str, str]:
    """The text of each file, in the order of time; `name` of a rank's, by rank and host. Hosts are spelled as the layout does."""
    found: dict[str, Lines] = {}
    for rank, lines in run.lines.items():
        host = run.nodes[rank // GPUS]
        as_said = f" on {spelled(run, host, layout)},"
        found.setdefault(name(rank, host), []).extend(
            (at, rank, text.replace(f" on {host},", as_said)) for at, text in lines
        )
    return {
        file: "".join(text + "\n" for _, _, text in sorted(lines, key=lambda line: line[0]))
        for file, lines in found.items()
    }


def kernel_text(run: Run, host: str) -> str:
    lines = sorted(run.kernel[host], key=lambda line: line[0])
    return "".join(f"[{at.strftime('%a %b %e %H:%M:%S %Y')}] {text}\n" for at, text in lines)


def slurm_flat(runs: list[Run]) -> Files:
    """All in one folder: a file a job, its tasks labelled by srun -l; the nodes' kernel logs beside."""
    files: Files = {}
    for run in runs:
        for rank, lines in run.lines.items():
            run.lines[rank] = [(at, f"{rank}: {text}") for at, text in lines]
        files |= lines_by(run, "slurm", lambda rank, host, run=run: f"slurm-{run.name}.out")  # type: ignore[misc]
        files |= {f"dmesg/{host}.{run.name}.txt": kernel_text(run, host) for host in run.kernel}
    return files


def numbers(runs: list[Run]) -> Files:
    """A folder a job, called by its number; torchrun's --log-dir in it, node by node."""
    files: Files = {}
    for run in runs:
        texts = lines_by(run, "numbers", lambda rank, host: f"{host}/attempt_0/{rank % GPUS}/stderr.log")
        files |= {f"{run.name}/{name}": re.sub(r"(?m)^\[rank\d+\] ", "", text) for name, text in texts.items()}
        files |= {f"{run.name}/{host}/dmesg.txt": kernel_text(run, host) for host in run.kernel}
    return files


def dates(runs: list[Run]) -> Files:
    """A folder a run, called by when it began; a file a rank."""
    files: Files = {}
    for run in runs:
        name = f"{run.begin:%Y-%m-%d_%H-%M-%S}"
        texts = lines_by(run, "dates", lambda rank, host: f"logs/rank_{rank}.log")
        files |= {f"{name}/{file}": text for file, text in texts.items()}
        files |= {f"{name}/kern-{host}.log": kernel_text(run, host) for host in run.kernel}
    return files


def pods(runs: list[Run]) -> Files:
    """Pods' logs and the table of where they ran; kernel logs under the nodes' names."""
    files: Files = {}
    for run in runs:
        name = f"{run.name}-{''.join(run.dice.choice(HEX) for _ in range(5))}"
        head = "NAME   READY   STATUS   RESTARTS   AGE   IP   NODE   NOMINATED NODE   READINESS GATES"
        table = [
            f"{run.name}-worker-{place}   0/1   Error   0   4h   10.244.{place}.{run.dice.randint(2, 250)}   {host}   <none>   <none>"
            for place, host in enumerate(run.nodes)
        ]
        texts = lines_by(run, "pods", lambda rank, host, run=run: f"{spelled(run, host, 'pods')}.log")  # type: ignore[misc]
        files |= {f"{name}/{file}": text for file, text in texts.items()}
        files[f"{name}/pods.txt"] = "\n".join([head, *table]) + "\n"
        files |= {f"{name}/node-{host}.dmesg": kernel_text(run, host) for host in run.kernel}
    return files


WORDS = ("lucky-otter", "deft-plover", "mild-sparrow", "brisk-heron", "calm-lark", "vivid-ibis")


def full_names(runs: list[Run]) -> Files:
    """Folders called by a tracker's words; hosts by their short or their full names; one log a node."""
    files: Files = {}
    for word, run in zip(WORDS, runs, strict=True):
        texts = lines_by(run, "full-names", lambda rank, host: f"{host}.hpc.example.edu.log")
        files |= {f"{word}/{file}": text for file, text in texts.items()}
        files |= {f"{word}/{host.upper()}.dmesg.txt": kernel_text(run, host) for host in run.kernel}
    return files


def attempts(runs: list[Run]) -> Files:
    """One job that was started six times: a folder an attempt."""
    files: Files = {}
    for number, run in enumerate(runs):
        texts = lines_by(run, "attempts", lambda rank, host: f"rank{rank}.log")
        files |= {f"pretrain-13b/attempt_{number}/{file}": text for file, text in texts.items()}
        files |= {f"pretrain-13b/attempt_{number}/{host}.dmesg": kernel_text(run, host) for host in run.kernel}
    return files


def one_log_each(runs: list[Run]) -> Files:
    """A log a run, called by a tracker's word; the nodes' kernel logs beside."""
    files: Files = {}
    for word, run in zip(WORDS, runs, strict=True):
        files |= lines_by(run, "logs", lambda rank, host, word=word: f"{word}.log")  # type: ignore[misc]
        files |= {f"dmesg/{host}-{run.begin:%m%d}.txt": kernel_text(run, host) for host in run.kernel}
    return files


LAYOUTS: dict[str, Callable[[list[Run]], Files]] = {
    "slurm": slurm_flat, "numbers": numbers, "dates": dates, "pods": pods, "full-names": full_names, "attempts": attempts,
    "logs": one_log_each, "tars": numbers,
}  # fmt: skip


# --- the runs


def made(kind: str, seed: int, each: int = 4, stray: bool = False) -> tuple[list[Run], str]:
    """Six runs on `each` nodes, and the host that is behind them (or none). `stray`: one of them failed for its own reasons."""
    what = KINDS[kind]
    dice = random.Random(f"{kind} {seed}")
    prefix = dice.choice(("gpu-a", "n", "hgx-", "trn", "dgx-b"))
    nodes = [f"{prefix}{number:02}" for number in range(1, 13)]
    others = [f"{prefix}{number:02}" for number in range(1, 1 + 6 * each)]
    dice.shuffle(others)
    job = dice.randint(40_000, 900_000)
    start = datetime(2026, dice.randint(1, 9), dice.randint(1, 14), dice.randint(0, 23))
    hour = dice.randint(0, 23)
    found = []
    for number, fault in enumerate(what.faults):
        bad = nodes[BAD] if what.where in ("node", "gpu") else None
        placed = others[each * number : each * (number + 1)] if what.when == "outage" else some(dice, nodes, each, bad)
        rank = dice.randrange(GPUS * len(placed))
        when = what.when
        if stray and number == STRAY:
            fault, when = bug, "anytime"
        elif bad:
            rank = placed.index(bad) * GPUS + (dice.randrange(GPUS) if what.where == "node" else 2)
        pace = dice.uniform(1.5, 4.0)
        day = start + timedelta(days=dice.randint(1, 3) + 3 * number)
        end = {
            "anytime": day + timedelta(minutes=dice.randint(0, 1439)),
            "night": day.replace(hour=hour) + timedelta(minutes=dice.randint(0, 40)),
            "outage": start + timedelta(minutes=dice.uniform(0, 9)),
        }[when]
        first, steps = dice.choice([0, 2000, 4000, 8000]), dice.randint(700, 2200)
        job += dice.randint(3, 4000)
        begin = end - timedelta(seconds=steps * pace + 95)
        own = random.Random(f"{kind} {seed} {number}")
        run = Job(str(job), placed, begin, first + steps, first, own, rank)
        healthy_part(run, pace, 250)
        fault(run)
        found.append(run)
    return found, nodes[BAD] if what.where in ("node", "gpu") else ""


def some(dice: random.Random, nodes: list[str], count: int, must: str | None) -> list[str]:
    chosen = dice.sample([node for node in nodes if node != must], count - 1 if must else count)
    if must:
        chosen.insert(dice.randint(0, count - 1), must)
    return chosen


def write(kind: str, layout: str, seed: int, folder: Path, each: int = 4, stray: bool = False) -> str:
    """The folder, and the host that is behind it (or none)."""
    runs, host = made(kind, seed, each, stray)
    files = LAYOUTS[layout](runs)
    if layout == "tars":
        packed(files, folder)
        return host
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return host


def packed(files: Files, folder: Path) -> None:
    """An archive for each of the folders."""
    folder.mkdir(parents=True, exist_ok=True)
    for top in sorted({name.partition("/")[0] for name in files}):
        with tarfile.open(folder / f"{top}.tar.gz", "w:gz") as archive:
            for name, text in files.items():
                if name.startswith(f"{top}/"):
                    data = text.encode()
                    entry = tarfile.TarInfo(name)
                    entry.size = len(data)
                    archive.addfile(entry, io.BytesIO(data))

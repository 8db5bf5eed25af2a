"""Compose the evidence of an incident line by line, so that a test reads like a story.

    job = Incident(ranks=8, hosts=2, layout="merged", torch="2.7")
    job.init()
    end = job.steps(100, 130)
    job.killed(5, end + 2)
    job.time_out(end + 602, seq=131, but=[5])
    verdict = job.verdict(tmp_path)

Times are seconds since `start`. Every report passes `sound` before a test sees it: what holds for any report at all
stands there, not in the stories.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path

import jsonschema

from whichrank.diagnosis import diagnose
from whichrank.model import Report, Verdict
from whichrank.report import json_report

LAYOUTS = ("merged", "per-rank", "per-node")
GENERATIONS = ("2.1", "2.3", "2.5", "2.7")
SURE = {"proven", "likely"}
TIMEOUT_CAUSES = {"timeout_too_short", "timeout_not_applied"}
LEFT_OPEN = "\x00"  # at the end of a line: the file ends here, in the middle of it


@dataclass(frozen=True)
class Entry:
    at: float
    file: str
    text: str


class Incident:
    """N ranks on H hosts, evenly. `layout` says which file a rank's output goes to, `torch` how its watchdog speaks.

    stamps   iso (2026-11-30 05:12:44,120), day (05:12:44), short (11-30 05:12:44), none: of the program's own lines
    """

    def __init__(
        self,
        ranks: int = 8,
        hosts: int = 2,
        *,
        layout: str = "per-rank",
        torch: str = "2.7",
        start: str = "2026-11-30 05:00:00",
        host_name: str = "node-{:02d}",
        first_pid: int = 41200,
        limit_s: int = 600,
        stamps: str = "iso",
        folder: str = "job",
    ) -> None:
        self.size, self.layout, self.torch, self.limit_s, self.stamps, self.folder = (
            ranks,
            layout,
            torch,
            limit_s,
            stamps,
            folder,
        )
        self.hosts = [host_name.format(number + 1) for number in range(hosts)]
        self.per_host = ranks // hosts
        self.first_pid = first_pid
        self.start = datetime.fromisoformat(start).replace(tzinfo=timezone.utc)
        self.entries: list[Entry] = []
        self.saved: list[tuple[float, int]] = []  # finished checkpoints: when, step
        self.excusable: set[str] = set()  # hosts whose hardware the story shows to be at fault
        self.prefix = ""  # of file names: a job id, an attempt

    # --- who and when ---

    @property
    def ranks(self) -> list[int]:
        return list(range(self.size))

    def host(self, rank: int) -> str:
        return self.hosts[rank // self.per_host]

    def local(self, rank: int) -> int:
        return rank % self.per_host

    def pid(self, rank: int) -> int:
        return self.first_pid + 7 * self.local(rank) + 1000 * (rank // self.per_host)

    def others(self, *but: int) -> list[int]:
        return [rank for rank in self.ranks if rank not in but]

    def when(self, at: float) -> datetime:
        return self.start + timedelta(seconds=at)

    def stamp(self, at: float, how: str | None = None) -> str:
        how = how or self.stamps
        if how == "none":
            return ""
        form = {"iso": "%Y-%m-%d %H:%M:%S,", "day": "%H:%M:%S.", "short": "%m-%d %H:%M:%S."}[how]
        when = self.when(at)
        return when.strftime(form) + f"{when.microsecond // 1000:03d} "

    def glog(self, at: float) -> str:
        when = self.when(at)
        return f"{when:%m%d %H:%M:%S.%f}"

    # --- where output goes ---

    def file_of(self, rank: int) -> str:
        name = {
            "merged": "train.log",
            "per-rank": f"logs/{self.prefix}rank{rank}.log",
            "per-node": f"logs/{self.prefix}{self.host(rank)}.log",
        }
        if self.layout == "attempt-dir":
            return f"logs/none_k3x9/{self.prefix or 'attempt_0'}/{self.local(rank)}/stderr.log"
        return name[self.layout]

    def launcher_file(self, host: str) -> str:
        return {"merged": "train.log", "per-node": f"logs/{self.prefix}{host}.log"}.get(
            self.layout, f"{self.prefix}torchrun-{host}.log"
        )

    def raw(self, at: float, file: str, text: str) -> None:
        """One line as it stands, or several."""
        for number, line in enumerate(text.split("\n")):
            self.entries.append(Entry(at + number * 1e-6, file, line))

    def say(self, at: float, rank: int, text: str, *, file: str | None = None) -> None:
        """A line of the training program, by its logger."""
        self.raw(at, file or self.file_of(rank), f"{self.stamp(at)}[rank{rank}] {text}")

    def stderr(self, at: float, rank: int, text: str) -> None:
        """Lines of a rank's Python process: labelled from torch 2.2 on."""
        label = "" if self.torch < "2.2" else f"[rank{rank}]: "
        for number, line in enumerate(text.split("\n")):
            self.raw(at + number * 1e-6, self.file_of(rank), label + line)

    # --- what happens ---

    def init(self, at: float = 0.0, ranks: Iterable[int] | None = None) -> None:
        """NCCL's lines: who runs where, in which process, on which GPU."""
        for rank in self.ranks if ranks is None else ranks:
            self.raw(
                at,
                self.file_of(rank),
                f"{self.host(rank)}:{self.pid(rank)}:{self.pid(rank) + 3} [{self.local(rank)}] NCCL INFO ncclCommInitRankConfig comm 0x55d0b65c{rank:04x} rank {rank} nranks {self.size} "
                f"cudaDev {self.local(rank)} nvmlDev {self.local(rank)} busId {self.bus(rank)} commId 0x7c1f0a9be2d3f411 - Init COMPLETE",
            )

    def bus(self, rank: int) -> str:
        return f"{0x1B + 0x10 * self.local(rank):x}000"

    def steps(
        self,
        first: int,
        last: int,
        *,
        at: float = 10.0,
        every: float = 2.0,
        ranks: Iterable[int] | None = None,
        until: dict[int, int] | None = None,
    ) -> float:
        """A line a step from every rank; returns the time of the last. `until`: the last step of some ranks."""
        time = at
        for step in range(first, last + 1):
            for rank in self.ranks if ranks is None else ranks:
                if step <= (until or {}).get(rank, last):
                    self.say(
                        time + 0.01 * rank,
                        rank,
                        f"step {step} loss {2.9 - 0.001 * step + 0.002 * (rank % 3):.4f} grad_norm {1.1 + 0.01 * (rank % 2):.3f}",
                    )
            time += every
        return time - every

    def checkpoint(self, at: float, step: int, rank: int = 0) -> None:
        self.say(at, rank, f"checkpoint step {step} saved to /ckpt/run/step_{step}")
        self.saved.append((at, step))

    def work(self, seq: int, op: str, numel: int, limit_ms: int) -> str:
        sizes = f", NumelIn={numel}, NumelOut={numel}"
        return f"WorkNCCL(SeqNum={seq}, OpType={op}{sizes}, Timeout(ms)={limit_ms})"

    def time_out(
        self,
        at: float,
        *,
        seq: int,
        ranks: Iterable[int] | None = None,
        but: Iterable[int] = (),
        op: str = "ALLREDUCE",
        numel: int = 12851200,
        enqueued: int | None = None,
        completed: int | None = None,
        group: str = "default_pg",
        group_id: int = 0,
        members: Sequence[int] | None = None,
        apart: float = 0.02,
        first: int | None = None,
    ) -> None:
        """The watchdog's block on each of `ranks`, one after the other, `first` before the others."""
        chosen = [rank for rank in (self.ranks if ranks is None else ranks) if rank not in set(but)]
        if first is not None:
            chosen.sort(key=lambda rank: rank != first)
        for number, rank in enumerate(chosen):
            in_group = list(members).index(rank) if members is not None else rank
            self._block(
                at + number * apart,
                rank,
                in_group,
                group,
                group_id,
                seq,
                op,
                numel,
                enqueued if enqueued is not None else seq + 1,
                completed if completed is not None else seq - 1,
            )

    def _block(
        self,
        at: float,
        rank: int,
        in_group: int,
        group: str,
        group_id: int,
        seq: int,
        op: str,
        numel: int,
        enqueued: int,
        completed: int,
    ) -> None:
        limit = self.limit_s * 1000
        caught = f"[Rank {in_group}] Watchdog caught collective operation timeout: {self.work(seq, op, numel, limit)} ran for {limit + 40 + 3 * in_group} milliseconds before timing out."
        abort = "Some NCCL operations have failed or timed out. Due to the asynchronous nature of CUDA kernels, subsequent GPU operations might run on corrupted/incomplete data."
        down = "To avoid data inconsistency, we are taking the entire process down."
        queue = f"last enqueued NCCL work: {enqueued}, last completed NCCL work: {completed}."

        def head(line: int) -> str:
            if self.torch == "2.1":
                return f"[E ProcessGroupNCCL.cpp:{line}] "
            if self.torch == "2.3":
                return f"[rank{rank}]:[E ProcessGroupNCCL.cpp:{line}] "
            return f"[rank{rank}]:[E{self.glog(at)}000 ProcessGroupNCCL.cpp:{line}] "

        if self.torch == "2.1":
            lines = [
                f"{head(475)}{caught}",
                f"{head(489)}{abort}",
                f"{head(495)}{down}",
                f"{head(916)}[Rank {in_group}] NCCL watchdog thread terminated with exception: {caught}",
                "terminate called after throwing an instance of 'std::runtime_error'",
                f"  what():  [Rank {in_group}] NCCL watchdog thread terminated with exception: {caught}",
            ]
        else:
            tag = (
                f"[PG {group_id} Rank {in_group}]"
                if self.torch == "2.3"
                else f"[PG ID {group_id} PG GUID {group_id}({group}) Rank {in_group}]"
            )
            status = {
                "2.3": f"{tag} Timeout at NCCL work: {seq}, {queue}",
                "2.5": f"{tag} Exception (either an error or timeout) detected by watchdog at work: {seq}, {queue}",
                "2.7": f"{tag}  failure detected by watchdog at work sequence id: {seq} PG status: last enqueued work: {enqueued}, last completed work: {completed}",
            }[self.torch]
            lines = [f"{head(632)}{caught}", f"{head(2268)}{status}"]
            if self.torch == "2.7":
                lines += [
                    f"{head(670)}Stack trace of the failed collective not found, potentially because FlightRecorder is disabled. You can enable it by setting TORCH_NCCL_TRACE_BUFFER_SIZE to a non-zero value.",
                    f"{head(2103)}{tag} First PG on this rank to signal dumping.",
                ]
            lines += [
                f"{head(684)}[Rank {in_group}] {abort}",
                f"{head(698)}[Rank {in_group}] {down}",
                f"{head(1896)}{tag} Process group watchdog thread terminated with exception: {caught}",
                "Exception raised from checkTimeout at /pytorch/torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:635 (most recent call first):",
                "terminate called after throwing an instance of 'c10::DistBackendError'",
                f"  what():  {tag} Process group watchdog thread terminated with exception: {caught}",
            ]
        for number, line in enumerate(lines):
            self.raw(at + number * 1e-4, self.file_of(rank), line)

    def idle_dump(self, at: float, rank: int, seq: int, fired: int) -> None:
        """This rank's queue is empty when another's time-out asks it to dump (torch 2.5 on)."""
        self.raw(
            at,
            self.file_of(rank),
            f"[rank{rank}]:[E{self.glog(at)}000 ProcessGroupNCCL.cpp:1682] [PG ID 0 PG GUID 0(default_pg) Rank {rank}] Received a dump signal due to a collective timeout from  rank {fired} "
            f"and we will try our best to dump the debug info. Last enqueued NCCL work: {seq}, last completed NCCL work: {seq}.This is most likely caused by incorrect usages of collectives, e.g., wrong sizes used across ranks, the order of collectives is not same for all ranks or the scheduled collective, for some reason, didn't run.",
        )

    def crash(
        self,
        at: float,
        rank: int,
        kind: str = "ValueError",
        message: str = "need at least one array to concatenate",
        site: str = "/work/data/collate.py",
        line: int = 71,
    ) -> None:
        """An uncaught exception in the rank's main thread."""
        self.stderr(
            at,
            rank,
            f'Traceback (most recent call last):\n  File "/work/train.py", line 212, in <module>\n    main()\n  File "/work/train.py", line 187, in main\n    batch = next(batches)\n'
            f'  File "{site}", line {line}, in collate\n    raise_it()\n{kind}: {message}',
        )

    def closed_by_peer(self, at: float, ranks: Iterable[int], dead: int) -> None:
        """NCCL on the survivors, and what PyTorch makes of it."""
        for number, rank in enumerate(ranks):
            time = at + 0.05 * number
            self.raw(
                time,
                self.file_of(rank),
                f"\n{self.host(rank)}:{self.pid(rank)}:{self.pid(rank) + 9} [{self.local(rank)}] misc/socket.cc:71 NCCL WARN socketProgress: Connection closed by remote peer {self.host(dead)}<4{dead:04d}>",
            )
            self.stderr(
                time + 0.01,
                rank,
                'Traceback (most recent call last):\n  File "/work/train.py", line 190, in main\n    loss.backward()\n'
                "torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:3356, remote process exited or there was a network error, NCCL version 2.26.2\n"
                "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.\nLast error:\nsocketProgress: Connection closed by remote peer",
            )

    # --- the launcher ---

    def agent(
        self, at: float, host: str, text: str, level: str = "E", place: str = "multiprocessing/api.py:874"
    ) -> None:
        if self.torch < "2.4":
            module = "torch.distributed.elastic." + place.rsplit(":", 1)[0].removesuffix(".py").replace("/", ".")
            word = {"E": "ERROR", "W": "WARNING", "I": "INFO"}[level]
            when = self.when(at)
            head = f"[{when:%Y-%m-%d %H:%M:%S},{when.microsecond // 1000:03d}] {module}: [{word}] "
        else:
            head = f"{level}{self.glog(at)} 40900 torch/distributed/elastic/{place}] "
        self.raw(at, self.launcher_file(host), head + text)

    def exits(self, at: float, first: int, code: int, *, others: int = -15, hosts: Iterable[str] | None = None) -> None:
        """torchrun on each host: `first` ended with `code` and is its "Root Cause"; the rest of its host is stopped."""
        for late, host in enumerate(self.hosts if hosts is None else hosts):
            at += 0.2 * late
            here = [rank for rank in self.ranks if self.host(rank) == host]
            root = first if first in here else here[0]
            root_code = code if first in here else others if others != -15 else -6
            rest = [rank for rank in here if rank != root]
            for rank in rest:
                if others == -15:
                    self.agent(
                        at,
                        host,
                        f"Sending process {self.pid(rank)} closing signal SIGTERM",
                        "W",
                        "multiprocessing/api.py:900",
                    )
            self.agent(
                at + 1,
                host,
                f"failed (exitcode: {root_code}) local_rank: {self.local(root)} (pid: {self.pid(root)}) of binary: /opt/venv/bin/python3",
            )
            self.summary(at + 1.5, host, root, root_code, [(rank, others) for rank in rest])

    def summary(self, at: float, host: str, root: int, code: int, rest: Sequence[tuple[int, int]]) -> None:
        names = {-9: "SIGKILL", -6: "SIGABRT", -15: "SIGTERM"}

        def entry(number: int, rank: int, code: int) -> list[str]:
            signal = f" ({names[code]})" if code in names else ""
            last = (
                f"Signal {-code} ({names[code]}) received by PID {self.pid(rank)}"
                if code in names
                else "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html"
            )
            return [
                f"[{number}]:",
                f"  time      : {self.when(at):%Y-%m-%d_%H:%M:%S}",
                f"  host      : {host}",
                f"  rank      : {rank} (local_rank: {self.local(rank)})",
                f"  exitcode  : {code} (pid: {self.pid(rank)}) {signal}".rstrip(),
                "  error_file: <N/A>",
                f"  traceback : {last}",
            ]

        lines = [
            "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
            "=" * 60,
            "train.py FAILED",
            "-" * 60,
            "Failures:",
        ]
        for number, (rank, its) in enumerate(rest, 1):
            lines += entry(number, rank, its)
        if not rest:
            lines.append("  <NO_OTHER_FAILURES>")
        lines += ["-" * 60, "Root Cause (first observed failure):", *entry(0, root, code), "=" * 60]
        self.raw(at, self.launcher_file(host), "\n".join(lines))

    def killed(self, at: float, rank: int) -> None:
        """SIGKILL: its launcher sees exit code -9 and stops the others of that host."""
        self.exits(at, rank, -9, hosts=[self.host(rank)])

    def restarts(self, at: float, left: int = 2, of: int = 3) -> None:
        for host in self.hosts:
            self.agent(
                at,
                host,
                f"[default] Worker group FAILED. {left}/{of} attempts left; will restart worker group",
                "I",
                "agent/server/api.py:931",
            )

    def finishes(self, at: float) -> None:
        for host in self.hosts:
            self.agent(
                at,
                host,
                "[default] worker group successfully finished. Waiting 300 seconds for other agents to finish.",
                "I",
                "agent/server/api.py:922",
            )

    # --- the hosts ---

    def kernel(self, at: float, host: str, text: str, how: str = "dmesg-T", up_s: float = 86400.0) -> None:
        when = self.when(at)
        file, head = {
            "dmesg-T": (f"dmesg-{host}.txt", f"[{when:%a %b %d %H:%M:%S %Y}] "),
            "boot": (f"dmesg-{host}.txt", f"[{up_s + at:12.6f}] "),
            "syslog": (f"kern-{host}.log", f"{when:%b} {when.day:2d} {when:%H:%M:%S} {host} kernel: "),
        }[how]
        self.raw(at, file, head + text)

    def oom(
        self, at: float, host: str, pid: int, *, comm: str = "python3", memcg: str | None = None, how: str = "dmesg-T"
    ) -> None:
        """The kernel's report of a kill for memory."""
        self.kernel(
            at - 0.01, host, f"{comm} invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0", how
        )
        if memcg is not None:
            self.kernel(
                at - 0.005,
                host,
                f"oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0-1,oom_memcg={memcg},task_memcg={memcg},task={comm},pid={pid},uid=1000",
                how,
            )
        word = "Memory cgroup out of memory" if memcg is not None else "Out of memory"
        self.kernel(
            at,
            host,
            f"{word}: Killed process {pid} ({comm}) total-vm:221356012kB, anon-rss:150944000kB, file-rss:68kB, shmem-rss:1024kB, UID:1000 pgtables:480120kB oom_score_adj:0",
            how,
        )

    def quiet_kernel(self, hosts: Iterable[str] | None = None) -> None:
        """Kernel logs with nothing in them that matters."""
        for host in self.hosts if hosts is None else hosts:
            for minute in range(5):
                self.kernel(
                    minute * 60,
                    host,
                    f'audit: type=1400 audit(1796018505.{minute:03d}:41{minute}): apparmor="STATUS" operation="profile_load" name="snap.core" pid={900 + minute}',
                )

    # --- files and answers ---

    def text_of(self, file: str) -> str:
        entries = sorted((entry for entry in self.entries if entry.file == file), key=lambda entry: entry.at)
        text = "".join(entry.text + "\n" for entry in entries)
        return text[: -1 - len(LEFT_OPEN)] if text.endswith(LEFT_OPEN + "\n") else text

    def write(self, folder: Path) -> list[Path]:
        """All files of the incident below `folder`/`self.folder`."""
        top = folder / self.folder
        paths = []
        for file in sorted({entry.file for entry in self.entries}):
            path = top / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self.text_of(file), encoding="utf-8")
            paths.append(path)
        return paths

    def report(self, folder: Path) -> Report:
        self.write(folder)
        return self.sound(diagnose([str(folder / self.folder)]), folder)

    def verdict(self, folder: Path) -> Verdict:
        return self.report(folder).verdicts[0]

    def sound(self, report: Report, folder: Path) -> Report:
        """What holds for every report, whatever the story."""
        sound(report, folder)
        for part in (report, *report.incidents):
            for verdict in part.verdicts:
                step = verdict.action.resume_from_step
                assert step is None or step in {saved for _, saved in self.saved}, (
                    f"resume from {step}, saved {self.saved}"
                )
                assert set(verdict.action.exclude_hosts) <= self.excusable, (
                    f"{verdict.action.exclude_hosts} excluded without hardware evidence"
                )
        return report


VALIDATOR = jsonschema.Draft202012Validator(json_report.schema())


def sound(report: Report, folder: Path) -> None:
    """The rules that no report breaks: its schema, its proofs, who is named, what is advised."""
    VALIDATOR.validate(json.loads(json_report.render(report)))
    for part in (report, *report.incidents):
        for verdict in part.verdicts:
            named = {culprit.rank for culprit in verdict.culprits if culprit.rank is not None}
            assert not named & set(verdict.victims), "a culprit is no victim"
            assert verdict.action.do != "raise_timeout" or (
                verdict.cause in TIMEOUT_CAUSES and verdict.grade in SURE
            ), f"raise_timeout for {verdict.cause} ({verdict.grade})"
            assert verdict.cause == "none" or verdict.says, "no statement"
            assert verdict.cause in ("none", "undecided") or verdict.because, f"{verdict.cause} without a proof"
            for proof in (*verdict.because, *verdict.against):
                _proved(proof.source, proof.line, proof.excerpt, folder)


def _proved(source: str, line: int | None, excerpt: str, folder: Path) -> None:
    path = next((path for path in (folder / source, Path(source)) if path.is_file()), None)
    assert path is not None, f"{source} is no file of the evidence"
    if line is None:
        return
    text = path.read_text(encoding="utf-8").split("\n")[line - 1]
    words = [word for piece in excerpt.split("…") for word in piece.split()]
    assert words and sum(word in text for word in words) >= 0.8 * len(words), (
        f"{source}:{line} does not hold {excerpt!r}"
    )


def named(verdict: Verdict) -> list[int]:
    return sorted(culprit.rank for culprit in verdict.culprits if culprit.rank is not None)


def surely_named(verdict: Verdict) -> list[int]:
    return named(verdict) if verdict.rank_grade in SURE else []


def core(report: Report) -> tuple[object, ...]:
    """What must not change when only the wrapping of the evidence does."""
    verdict = report.verdicts[0]
    return (
        verdict.cause,
        verdict.grade,
        named(verdict),
        verdict.rank_grade,
        verdict.mechanism,
        verdict.hosts,
        verdict.seq,
        verdict.op,
        len(report.incidents),
    )


def told(verdict: Verdict) -> str:
    """For the message of a failing assertion."""
    return f"{verdict.cause} ({verdict.grade} {verdict.confidence}), ranks {named(verdict)} ({verdict.rank_grade} {verdict.rank_confidence}), hosts {verdict.hosts}, {verdict.mechanism}, {verdict.action.do}: {verdict.says}"


def words(verdict: Verdict) -> str:
    """All that it says, for looking for a word that must not be there."""
    return re.sub(r"\s+", " ", " ".join([verdict.says, *(proof.says for proof in verdict.because)]))

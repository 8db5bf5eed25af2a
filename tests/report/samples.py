"""Reports as `diagnose` would make them, one for each situation that looks different on a page."""

from __future__ import annotations

from dataclasses import replace

from whichrank.model import (
    Action,
    Check,
    Culprit,
    Missing,
    Moment,
    Proof,
    RankRow,
    Report,
    Summary,
    Verdict,
    Weighed,
)

TOOL = "whichrank 0.1.0"
WATCHDOG = (
    "[rank{rank}]:[E1130 05:41:58.{rank:03d}909491 ProcessGroupNCCL.cpp:632] [PG ID 0 PG GUID 0(default_pg) Rank {rank}] "
    "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1842, OpType=ALLREDUCE, NumelIn=16777216, "
    "NumelOut=16777216, Timeout(ms)=1800000) ran for 1800061 milliseconds before timing out."
)


def node(rank: int) -> str:
    return f"node-{rank // 8 + 1:02d}"


def oom() -> Report:
    """8 nodes, 64 ranks; the kernel killed rank 17 for memory."""
    waiting = [rank for rank in range(64) if rank != 17]
    killed = Proof(
        "the kernel killed pid 41203, which is rank 17, for memory",
        "logs/node-03/dmesg.txt",
        212,
        "[Mon Nov 30 05:12:44 2026] Memory cgroup out of memory: Killed process 41203 (python3) total-vm:92356112kB, "
        "anon-rss:66950944kB, file-rss:71020kB, shmem-rss:1048576kB, UID:1000 pgtables:142340kB oom_score_adj:0",
    )
    tie = Proof(
        "pid 41203 on node-03 is rank 17",
        "logs/rank17.log",
        88,
        "node-03:41203:41388 [1] NCCL INFO ncclCommInitRank comm 0x55d0c1f0 rank 17 nranks 64 cudaDev 1 nvmlDev 1 busId 1b000 commId 0x9a3c77e1 - Init COMPLETE",
    )
    watchdogs = tuple(
        Proof(f"rank {rank} waited 1800 s in ALLREDUCE #1842", f"logs/rank{rank}.log", 9021, WATCHDOG.format(rank=rank))
        for rank in waiting
    )
    verdict = Verdict(
        cause="host_oom",
        family="dead_rank",
        grade="proven",
        confidence=0.98,
        mechanism="dead",
        culprits=(Culprit(17, "node-03", 41203),),
        hosts=("node-03",),
        rank_grade="proven",
        rank_confidence=0.99,
        says="Rank 17 on node-03 was killed by the kernel's OOM killer 29 min before the timeout; 63 ranks waited for it in ALLREDUCE #1842.",
        victims=tuple(waiting),
        group="default_pg",
        group_ranks=tuple(range(64)),
        seq=1842,
        op="ALLREDUCE",
        because=(killed, tie, *watchdogs),
        checks=(Check("the kernel's own word", "ssh node-03 dmesg -T | grep -i 'killed process'", "node-03"),),
        fix=("12 workers x 2.1 GiB outgrew the job's 64 GiB limit: num_workers=4, or --mem=96G",),
        stopgap="don't raise the timeout: no rank was slow, one was gone",
        action=Action(
            "restart",
            "restart from step 41000 with fewer DataLoader workers; the node itself is sound",
            grade="proven",
            resume_from_step=41000,
            commands=("sbatch --export=ALL,NUM_WORKERS=4 train.sbatch --resume ckpt/step_41000",),
        ),
    )
    rows = [
        RankRow(rank, "waiting", "", node(rank), "default_pg", 1842, "ALLREDUCE", "2026-11-30T05:11:58Z")
        for rank in waiting
    ]
    rows.append(
        RankRow(17, "culprit", "last line at step 41184", "node-03", "default_pg", 1841, None, "2026-11-30T05:12:44Z")
    )
    timeline = [
        Moment("2026-11-30T04:58:02Z", "checkpoint saved at step 41000", "logs/rank0.log", 8011, 0, "node-01"),
        Moment("2026-11-30T05:12:44Z", "last line, step 41184", "logs/rank17.log", 8123, 17, "node-03"),
        Moment("2026-11-30T05:12:44Z", "killed for memory (pid 41203)", "logs/node-03/dmesg.txt", 212, 17, "node-03"),
        *(
            Moment(
                f"2026-11-30T05:41:58.{rank:03d}Z",
                "timed out in ALLREDUCE #1842",
                f"logs/rank{rank}.log",
                9021,
                rank,
                node(rank),
            )
            for rank in waiting
        ),
        Moment("2026-11-30T05:42:31Z", "torchrun ends the job", "logs/launcher.log", 77, None, "node-01"),
    ]
    weighed = (
        Weighed(
            "host_oom",
            0.98,
            7.1,
            ((6.0, killed), (1.0, replace(killed, says="exit by SIGKILL: memory is one of several senders", line=213))),
        ),
        Weighed("killed", 0.015, 1.2, ((-3.0, replace(killed, says="a sender is known")),)),
        Weighed("network", 0.002, -2.0, ((-2.0, replace(watchdogs[0], says="no transport error in 30 min")),)),
    )
    return Report(
        (verdict,),
        tuple(sorted(rows, key=lambda row: row.rank)),
        tuple(timeline),
        (
            Missing(
                "kernel log of node-05",
                "not among the files",
                "would rule out a second kill",
                "ssh node-05 dmesg -T > node-05.dmesg",
            ),
        ),
        weighed=weighed,
        summary=Summary(files=71, bytes=48_211_003, ranks=64, world_size=64, hosts=8, at="2026-11-30T05:41:58.324909Z"),
        tool=TOOL,
    )


def single_line() -> Report:
    """One watchdog line of one rank: nothing about the ranks that did not come."""
    excerpt = (
        "[rank1]:[E ProcessGroupNCCL.cpp:523] [Rank 1] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=57, OpType=ALLREDUCE, NumelIn=7411203, NumelOut=7411203, Timeout(ms)=1800000) ran for 1800518 milliseconds before timing out."
    )
    verdict = Verdict(
        cause="undecided",
        family="undecided",
        grade="undecided",
        confidence=0.34,
        mechanism="undecided",
        culprits=(),
        hosts=(),
        rank_grade="undecided",
        rank_confidence=0.1,
        says="Rank 1 waited 30 min in ALLREDUCE #57 for ranks of which nothing is here; a rank that reports a timeout is usually a victim.",
        victims=(1,),
        seq=57,
        op="ALLREDUCE",
        because=(Proof("rank 1 waited 1800.5 s in ALLREDUCE #57", "error.txt", 1, excerpt),),
        checks=(
            Check("which ranks did not print a timeout: the output of all ranks", "ls -l logs/"),
            Check("where the missing ranks stand, while it hangs", "py-spy dump --nonblocking --pid PID", "every node"),
            Check("whether the kernel killed one or a GPU failed", "dmesg -T | grep -iE 'killed process|xid'"),
        ),
        action=Action("needs_human", "collect the output of all ranks, then ask again"),
    )
    return Report(
        (verdict,),
        (RankRow(1, "waiting", "", None, None, 57, "ALLREDUCE"),),
        (),
        (Missing("all ranks but rank 1", "not among the files", "a rank that is silent is the suspect"),),
        summary=Summary(files=1, bytes=620, ranks=1, hosts=0),
        tool=TOOL,
    )


def healthy() -> Report:
    """Ended well."""
    verdict = Verdict(
        cause="none",
        family="none",
        grade="proven",
        confidence=0.99,
        mechanism="no_hang",
        culprits=(),
        hosts=(),
        rank_grade="proven",
        rank_confidence=0.99,
        says="No problem: all 8 ranks finished, the launcher ended with exit code 0.",
        because=(
            Proof(
                "the worker group succeeded",
                "agent.log",
                311,
                "INFO:torch.distributed.elastic.agent.server.api:[default] worker group successfully finished. Waiting 300 seconds for other agents to finish.",
            ),
        ),
        action=Action("none", "nothing to do", grade="proven"),
    )
    rows = tuple(RankRow(rank, "finished", "", "gx-1") for rank in range(8))
    return Report((verdict,), rows, summary=Summary(9, 120_331, 8, 8, 1), tool=TOOL)


def desync() -> Report:
    """Two sides in different collectives, and no evidence which is wrong."""
    ahead, behind = range(0, 6), (6, 7)
    proofs = (
        Proof(
            "ranks 0-5 run ALLREDUCE #341 at train.py:212",
            "fr/nccl_trace_rank_0",
            None,
            "default_pg #341 nccl:all_reduce [4096] float32 scheduled, train.py:212 step",
        ),
        Proof(
            "ranks 6 and 7 run ALLGATHER #341 at train.py:230",
            "fr/nccl_trace_rank_6",
            None,
            "default_pg #341 nccl:all_gather [4096] float32 scheduled, train.py:230 log_metrics",
        ),
    )
    verdict = Verdict(
        cause="desync_conditional",
        family="desync",
        grade="likely",
        confidence=0.82,
        mechanism="desync",
        culprits=(),
        hosts=(),
        rank_grade="possible",
        rank_confidence=0.5,
        says="Ranks 6 and 7 took a branch that ranks 0-5 did not: ALLGATHER at train.py:230 met ALLREDUCE at train.py:212 as #341.",
        group="default_pg",
        group_ranks=tuple(range(8)),
        seq=341,
        op="ALLREDUCE",
        because=proofs,
        against=(
            Proof(
                "rank 7's batch was one sample short, which uneven data would explain too",
                "rank7.log",
                402,
                "rank 7: last batch has 31 samples",
            ),
        ),
        checks=(Check("the condition before train.py:230 on every rank", "sed -n 220,232p train.py"),),
        fix=(
            "Call log_metrics' all_gather on every rank, whatever the loss is: take it out of the `if` at train.py:228.",
        ),
        stopgap="Switch the metric off (--no-log-metrics) until then.",
        action=Action("fix_code", "take the all_gather at train.py:230 out of its condition", grade="likely"),
    )
    second = replace(
        verdict,
        cause="desync_uneven_data",
        grade="possible",
        confidence=0.41,
        says="Rank 7 ran out of data one batch early and went on to the metrics.",
    )
    rows = [RankRow(rank, "waiting", "", "h1", "default_pg", 341, "ALLREDUCE") for rank in ahead]
    rows += [RankRow(rank, "ahead", "at train.py:230", "h1", "default_pg", 341, "ALLGATHER") for rank in behind]
    return Report(
        (verdict, second),
        tuple(rows),
        summary=Summary(9, 3_300_000, 8, 8, 1, "2026-11-30T11:08:21Z"),
        tool=TOOL,
    )


def big() -> Report:
    """4,096 ranks on 512 nodes; node 137 is gone, and with it its eight ranks."""
    dead = range(136 * 8, 137 * 8)
    rows = [
        RankRow(
            rank,
            "culprit" if rank in dead else "waiting",
            "" if rank not in dead else "no sign of life",
            f"node-{rank // 8 + 1:03d}",
            f"dp_{rank % 64}",
            90210 + rank % 3 if rank not in dead else 90209,
            "REDUCE_SCATTER" if rank not in dead else None,
            "2026-11-30T02:00:11Z" if rank in dead else "2026-11-30T02:00:12Z",
        )
        for rank in range(4096)
    ]
    proof = Proof(
        "Slurm saw node-137 fail",
        "slurm-88123.out",
        7712,
        "slurmstepd: error: *** STEP 88123.0 ON node-001 CANCELLED AT 2026-11-30T02:10:40 DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***",
    )
    drops = tuple(
        Proof(
            f"rank {rank} lost its peer on node-137",
            f"logs/very/long/path/of/a/run/2026-11-30/attempt_0/ranks/{rank // 64:03d}/rank{rank:04d}.log",
            400 + rank % 7,
            f"node-{rank // 8 + 1:03d}:3021{rank % 10}:3390{rank % 10} [{rank % 8}] NCCL WARN socketProgress: Connection closed by remote peer node-137.cluster<41022>",
        )
        for rank in range(64)
    )
    verdict = Verdict(
        cause="evicted",
        family="dead_rank",
        grade="likely",
        confidence=0.9,
        mechanism="dead",
        culprits=tuple(Culprit(rank, "node-137") for rank in dead),
        hosts=("node-137",),
        rank_grade="proven",
        rank_confidence=0.99,
        says="node-137 failed at 02:00:11Z and took ranks 1088-1095 with it; 4,088 ranks waited for them.",
        victims=tuple(rank for rank in range(4096) if rank not in dead),
        group="dp_0",
        group_ranks=tuple(range(0, 4096, 64)),
        seq=90210,
        op="REDUCE_SCATTER",
        because=(proof, *drops),
        checks=(
            Check("why the node went", "scontrol show node node-137", "the login node"),
            Check("its console or BMC log", "ipmitool -H node-137-bmc sel list | tail"),
        ),
        fix=("Have node-137 checked before it returns to the pool.",),
        stopgap="Keep two spare nodes in the allocation.",
        action=Action(
            "restart_excluding",
            "restart without node-137, from step 90000",
            "likely",
            ("node-137",),
            90000,
            ("sbatch --exclude=node-137 train.sbatch",),
        ),
    )
    return Report(
        (verdict,),
        tuple(rows),
        tuple(
            Moment(
                f"2026-11-30T02:{10 + rank % 40:02d}:00Z",
                "connection closed by node-137",
                drops[0].source,
                400,
                rank,
                node(rank),
            )
            for rank in range(64)
        ),
        tuple(Missing(f"kernel log of node-{n:03d}", "not among the files") for n in range(1, 513)),
        summary=Summary(4097, 9_000_000_000, 4096, 4096, 512, "2026-11-30T02:10:40Z"),
        tool=TOOL,
    )


def attempts() -> Report:
    """Three attempts: the first failed by itself, the others on what it left behind."""

    def verdict(says: str, rank: int, grade: str = "proven") -> Verdict:
        return Verdict(
            cause="exception",
            family="dead_rank",
            grade=grade,  # type: ignore[arg-type]
            confidence=0.97,
            mechanism="dead",
            culprits=(Culprit(rank, "tq-6", 7000 + rank),),
            hosts=("tq-6",),
            rank_grade="proven",
            rank_confidence=0.98,
            says=says,
            victims=tuple(r for r in range(8) if r != rank),
            because=(
                Proof(
                    f"rank {rank}'s own uncaught error",
                    f"resume-keeps-failing/logs/none_v7k2qe1x/attempt_0/{rank}/stderr.log",
                    41,
                    "json.decoder.JSONDecodeError: Expecting value: line 1 column 40961 (char 40960)",
                ),
            ),
            fix=("Repair or drop the record; let the loader skip what it cannot parse and count it.",),
            stopgap="Delete out/last.pt and resume from out/step_2000.pt.",
            action=Action("fix_code", "delete the truncated out/last.pt, repair the record, then restart", "likely"),
        )

    first = verdict("Attempt 0: rank 5 raised JSONDecodeError while reading a record; the others were then ended.", 5)
    later = verdict("Rank 0 could not read out/last.pt, which attempt 0 left truncated.", 0, "likely")

    def one(number: int, found: Verdict) -> Report:
        return Report(
            (found,),
            summary=Summary(8, 10_000, 8, 8, 1, f"2026-11-30T0{number + 3}:10:00Z"),
            label=f"attempt {number}",
            tool=TOOL,
        )

    rows = tuple(
        RankRow(
            rank, "culprit" if rank == 5 else "waiting", "", "tq-6", since="2026-11-30T03:10:00Z" if rank == 5 else None
        )
        for rank in range(8)
    )
    return Report(
        (first,),
        rows,
        (Moment("2026-11-30T03:10:00Z", "JSONDecodeError", "agent.log", 12, 5, "tq-6"),),
        incidents=(one(0, first), one(1, later), one(2, later)),
        summary=Summary(25, 90_000, 8, 8, 1, "2026-11-30T03:10:00Z"),
        tool=TOOL,
    )


def network() -> Report:
    """A port flapped: no rank to blame, but a place to look."""
    verdict = Verdict(
        cause="network",
        family="network",
        grade="proven",
        confidence=0.96,
        mechanism="network",
        culprits=(),
        hosts=("c2n02",),
        rank_grade="undecided",
        rank_confidence=0.2,
        says="The port mlx5_0 of c2n02 went down for 41 s; the 16 ranks of dp_0 entered ALLREDUCE #77 and none finished.",
        group="dp_0",
        group_ranks=tuple(range(16)),
        seq=77,
        op="ALLREDUCE",
        because=(
            Proof("the link went down", "c2n02.dmesg", 14, "[ 8812.101221] mlx5_core 0000:86:00.0 ib0: Link down"),
        ),
        fix=("Replace the cable of c2n02's port 1, then watch link_downed.",),
        stopgap="Restart without c2n02.",
        action=Action(
            "restart_excluding", "restart without c2n02", "proven", ("c2n02",), None, ("sbatch --exclude=c2n02 job.sh",)
        ),
    )
    rows = tuple(RankRow(r, "waiting", "", f"c2n{r // 8 + 2:02d}", "dp_0", 77, "ALLREDUCE") for r in range(16))
    return Report((verdict,), rows, summary=Summary(4, 20_000, 16, 32, 2, "2026-11-30T09:00:00Z"), tool=TOOL)


HOSTILE = (
    "\x1b]0;owned\x07\x1b[2J\x1b[31mred\x1b[0m [bold]markup[/bold] :boom: \u202eevil\u202c `tick` ```fence``` "
    "<script>alert(1)</script> </details> | pipe @everyone #12 **x** [a](http://x.test) \x9b1mC1 \ud800 \u200b\u2028end"
)


def hostile() -> Report:
    """Every text that comes from evidence tries to break out of the page."""
    report = single_line()
    verdict = replace(
        report.verdicts[0],
        says="Says " + HOSTILE,
        group=HOSTILE,
        op=HOSTILE,
        hosts=(HOSTILE,),
        group_ranks=(0, 1),
        because=(Proof("Proof " + HOSTILE, "logs/" + HOSTILE, 3, "Excerpt " + HOSTILE),),
        against=(Proof("Against " + HOSTILE, HOSTILE, None, HOSTILE),),
        checks=(Check("Check " + HOSTILE, "echo " + HOSTILE, HOSTILE),),
        fix=("Fix " + HOSTILE,),
        stopgap="Stopgap " + HOSTILE,
        action=Action("needs_human", "Now " + HOSTILE, commands=("run " + HOSTILE + "\nsecond line",)),
    )
    return replace(
        report,
        verdicts=(verdict, replace(verdict, cause="network", family="network")),
        ranks=(RankRow(1, "culprit", HOSTILE, HOSTILE, HOSTILE, 57, HOSTILE, HOSTILE),),
        timeline=(Moment("not a time " + HOSTILE, HOSTILE, HOSTILE, 1, None, HOSTILE),),
        gaps=(Missing(HOSTILE, HOSTILE, HOSTILE, HOSTILE),),
        weighed=(Weighed("network", 0.5, 0.1, ((1.0, Proof(HOSTILE, HOSTILE, None, HOSTILE)),)),),
        summary=Summary(files=1, unread=(HOSTILE + "2",)),
        label=HOSTILE,
    )


def empty() -> Report:
    """Nothing that could be read."""
    return Report((), gaps=(Missing("logs/", "no such file or folder"),), tool=TOOL)


SAMPLES = {
    "oom": oom,
    "single_line": single_line,
    "healthy": healthy,
    "desync": desync,
    "big": big,
    "attempts": attempts,
    "network": network,
    "empty": empty,
}

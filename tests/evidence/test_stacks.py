"""Stacks of every tool, and what a stack says its thread is doing."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reading import disturbed, essence, facts_of, one

from whichrank.evidence.stack_class import PHRASES, classify, explain, judge
from whichrank.facts import Fact

PYSPY = """Process 20106: python -u train_vid.py --local_rank=2
Python v3.11.8 (/usr/bin/python3.11)

Thread 20106 (idle): "MainThread"
    wait (threading.py:331)
    get (queue.py:180)
    _try_get_data (torch/utils/data/dataloader.py:1251)
    __next__ (torch/utils/data/dataloader.py:701)
    train_epoch (train_vid.py:142)   # next(it)
Thread 0x7F28D97FA700 (active+gil): "Thread-3 (_pin_memory_loop)"
    select (selectors.py:415)
    do_one_step (torch/utils/data/_utils/pin_memory.py:35)

Process 20910: python -u train_vid.py   (DataLoader worker 2 of pid 20106)
Python v3.11.8 (/usr/bin/python3.11)

Thread 20910 (active): "MainThread"
    decode (vidio/reader.py:88)
    _worker_loop (torch/utils/data/_utils/worker.py:349)
    __iter__ (torch/utils/data/dataloader.py:440)""".splitlines()

GDB = """Thread 2 (Thread 0x7f40f2ffd700 (LWP 28990) "pt_nccl_watchdg"):
#0  0x00007f41a8a0e3bf in pthread_cond_timedwait () from /lib/x86_64-linux-gnu/libc.so.6

Thread 1 (Thread 0x7f41a8b22740 (LWP 28811) "python3.11"):
#0  0x00007f41a89d7b17 in sched_yield () from /lib/x86_64-linux-gnu/libc.so.6
#1  0x00007f41054a1c7b in ?? () from /usr/lib/x86_64-linux-gnu/libcuda.so.1
#2  0x00007f4160c8d3c8 in cudaLaunchKernel () from /srv/envs/lib/libcudart.so.12
#3  0x00007f4112aa9f12 in void at::native::gpu_kernel_impl<at::native::FillFunctor<float> >(at::TensorIteratorBase&, at::native::FillFunctor<float> const&) () from /srv/torch/lib/libtorch_cuda.so
#4  main (argc=1, argv=0x7ffc) at /src/main.c:12""".splitlines()

FAULT = """Timeout (0:00:30)!
Thread 0x00007f1e2ffff700 [pt_data] (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 331 in wait
  File "/usr/lib/python3.11/threading.py", line 1002 in _bootstrap

Thread 0x00007f1e4c0e1740 (most recent call first):
  File "/v/torch/distributed/distributed_c10d.py", line 2420 in barrier
  File "train.py", line 513 in run
  File "train.py", line 600 in <module>""".splitlines()

PYSTACK = """Traceback for thread 1186 (python3.11) [Has the GIL] (most recent call last):
    (Python) File "/w/train.py", line 40, in <module>
        main()
    (Python) File "/w/train.py", line 12, in step
        dist.barrier()
    (Python) File "/v/torch/distributed/distributed_c10d.py", line 2420, in barrier""".splitlines()


def stacks(lines: list[str], name: str = "stacks.txt") -> list[Fact]:
    return [fact for fact in facts_of("\n".join(lines), name) if fact.kind == "stack"]


def test_pyspy() -> None:
    main, pin, worker = stacks(PYSPY)
    assert (main.who.pid, main.who.local_rank, main["thread"], main["main"], main["state"], main["tool"]) == (
        20106,
        2,
        "MainThread",
        True,
        "idle",
        "py-spy",
    )
    assert main["frames"][-1] == "train_epoch (train_vid.py:142)"
    assert main.spot.excerpt.startswith("_try_get_data")
    assert (pin["main"], pin["state"], pin["ident"]) == (False, "active+gil", "0x7F28D97FA700")
    assert (worker.who.pid, worker["ppid"]) == (20910, 20106)
    assert worker["command"].endswith("(DataLoader worker 2 of pid 20106)")
    assert [classify(fact["frames"]) for fact in (main, pin, worker)] == ["data_wait", "data_wait", "compute"]


def test_rank_from_the_name_of_the_file_or_the_command() -> None:
    assert {fact.rank for fact in stacks(PYSPY, "pyspy-rank6.txt")} == {6}
    assert (
        stacks(["Process 7: python3 -m engine.worker --rank 3", "", 'Thread 7 (idle): "MainThread"', "    f (a.py:1)"])[
            0
        ].rank
        == 3
    )


def test_pyspy_without_its_first_line() -> None:
    fact = stacks(
        ["# all 16 the same:", 'Thread 66120 (active): "MainThread"', "    synchronize (torch/cuda/streams.py:105)"]
    )[0]
    assert (fact.who.pid, fact["main"], classify(fact["frames"])) == (None, True, "gpu_sync")


def test_pyspy_json() -> None:
    dump = [
        {"pid": 5, "thread_id": 1, "thread_name": "MainThread", "os_thread_id": 5, "active": True, "owns_gil": False,
         "frames": [{"name": "barrier", "filename": "/v/torch/distributed/distributed_c10d.py", "short_filename": "torch/distributed/distributed_c10d.py", "line": 9}],
         "process_info": {"pid": 5, "command_line": "python t.py --rank 2"}},
        {"pid": 5, "thread_id": 2, "thread_name": None, "active": False, "owns_gil": False, "frames": []},
    ]  # fmt: skip
    main, other = stacks([json.dumps(dump)], "rank2.json")
    assert (main.rank, main.who.pid, main["main"], main["state"], main["frames"]) == (
        2,
        5,
        True,
        "active",
        ["barrier (torch/distributed/distributed_c10d.py:9)"],
    )
    assert other["main"] is False


def test_gdb() -> None:
    watchdog, main = stacks(GDB)
    assert (watchdog["thread"], watchdog["main"], watchdog.who.pid) == ("pt_nccl_watchdg", False, 28811)
    assert (main["thread"], main["main"], main.who.pid, main["tool"]) == ("python3.11", True, 28811, "gdb")
    assert main["frames"][2] == "cudaLaunchKernel (libcudart.so.12)"
    assert main["frames"][4] == "main (/src/main.c:12)"
    assert main.spot.excerpt.startswith("#2")
    assert classify(main["frames"]) == "gpu_sync"


def test_gdb_bt_after_info_threads() -> None:
    lines = ['* 1    Thread 0x7f41 (LWP 28811) "python3.11" 0x00007 in sched_yield ()', "(gdb) bt", *GDB[4:6]]
    fact = stacks(lines)[0]
    assert (fact.who.pid, fact["main"]) == (28811, True)


def test_faulthandler() -> None:
    pool, main = stacks(FAULT)
    assert (pool["thread"], pool["main"], main["main"], main["tool"]) == ("pt_data", False, True, "faulthandler")
    assert main["frames"][0] == "barrier (/v/torch/distributed/distributed_c10d.py:2420)"
    assert classify(main["frames"]) == "collective"


def test_dump_below_a_rank_that_aborts_itself() -> None:
    abort = "[rank3]:[F302 14:29:43.321738632 ProcessGroupNCCL.cpp:1557] [PG ID 0 PG GUID 0(default_pg) Rank 3] Terminating the process after attempting to dump debug info"
    found = stacks([abort, "Fatal Python error: Aborted", "", *FAULT[1:]])
    assert [(fact.rank, fact["main"]) for fact in found] == [(3, False), (3, True)]
    assert {fact.rank for fact in stacks([abort, "step 1", "step 2", "Fatal Python error: Aborted", *FAULT[1:]])} == {
        None
    }


def test_pystack() -> None:
    fact = stacks(PYSTACK)[0]
    assert (fact["frames"][0], fact["main"], fact.who.pid) == (
        "barrier (/v/torch/distributed/distributed_c10d.py:2420)",
        True,
        1186,
    )


def test_proc_stack() -> None:
    fact = stacks(
        [
            "$ cat /proc/932/stack",
            "[<0>] rpc_wait_bit_killable+0x1e/0x90 [sunrpc]",
            "[<0>] nfs_file_read+0x6d/0xb0 [nfs]",
        ]
    )[0]
    assert (fact.who.pid, fact["tool"], fact["frames"]) == (
        932,
        "kernel",
        ["rpc_wait_bit_killable (sunrpc)", "nfs_file_read (nfs)"],
    )
    assert classify(fact["frames"]) == "file_io"


def test_headings_name_the_host() -> None:
    assert one("# srun -w gx-011 py-spy dump --pid 20417", "member").who.host == "gx-011"
    fact = one("### ayr-07 pid 7722  22:06", "member")
    assert (fact.who.host, fact.who.pid) == ("ayr-07", 7722)


def test_ps() -> None:
    text = """$ ps -o pid,ppid,stat,wchan:20,lstart,cmd
    PID    PPID STAT WCHAN                                 STARTED CMD
  21050   20417 Dl   rpc_wait_bit         Mon Feb 16 17:20:41 2026 python -u train.py --x 8
  21051   20417 T    -                    Mon Feb 16 17:20:41 2026 python -u train.py"""
    first, second = (fact for fact in facts_of(text) if fact.kind == "process")
    assert (first.who.pid, first["ppid"], first["stat"], first["wchan"], first["command"]) == (
        21050,
        20417,
        "Dl",
        "rpc_wait_bit",
        "python -u train.py --x 8",
    )
    assert (second["stat"], second["wchan"]) == ("T", None)


@pytest.mark.parametrize(
    ("frames", "want"),
    [
        (["wait (threading.py:302)", "get (queue.py:170)", "__next__ (fairseq/data/iterators.py:648)", "train (t.py:1)"], "data_wait"),
        (["decode (img.py:3)", "__getitem__ (ds.py:3)", "fetch (torch/utils/data/_utils/fetch.py:52)", "_next_data (torch/utils/data/dataloader.py:789)", "fit (t.py:1)"], "data_wait"),
        (["get (multiprocessing/queues.py:103)", "_worker_loop (torch/utils/data/_utils/worker.py:309)", "__iter__ (torch/utils/data/dataloader.py:440)"], "sleep_lock"),
        (["readinto (socket.py:705)", "_read_status (http/client.py:279)", "urlopen (urllib3/connectionpool.py:787)", "post (requests/sessions.py:637)"], "upload"),
        (["write (libc.so.6)", "_save (torch/serialization.py:900)", "save (torch/serialization.py:700)", "save_checkpoint (t.py:3)"], "checkpoint"),
        (["write (torch/serialization.py:1)"], "checkpoint"),
        (["wait (threading.py:1)", "result (concurrent/futures/_base.py:1)", "save_pretrained (transformers/modeling_utils.py:2)"], "checkpoint"),
        (["read (libc.so.6)", "_Py_read (python3.12)", "_prefetch_one_file (engine/checkpoint/weight_loader.py:121)"], "file_io"),
        (["_communicate (subprocess.py:2115)", "run (subprocess.py:550)", "get_git_hash (t.py:3)"], "subprocess"),
        (["poll (multiprocessing/popen_fork.py:27)", "wait (multiprocessing/popen_fork.py:43)", "join (multiprocessing/process.py:149)"], "subprocess"),
        (["wait (subprocess.py:1)", "_run_ninja_build (torch/utils/cpp_extension.py:1)"], "compile"),
        (["compile (triton/compiler/compiler.py:1)", "_compile_inner (torch/_dynamo/convert_frame.py:1)", "fit (t.py:1)"], "compile"),
        (["forward (torch/nn/modules/linear.py:1)", "_fn (torch/_dynamo/eval_frame.py:1)", "fit (t.py:1)"], "compute"),
        (["all_reduce (torch/distributed/distributed_c10d.py:1)", "_compile_inner (torch/_dynamo/convert_frame.py:1)"], "collective"),
        (["cudaStreamSynchronize (libcudart.so.12)", "synchronize (torch/cuda/__init__.py:954)", "fit (t.py:1)"], "gpu_sync"),
        (["cudaStreamSynchronize (libcudart.so.12)", "barrier (torch/distributed/distributed_c10d.py:1)"], "collective"),
        (["ncclCommInitRankConfig (libnccl.so.2)", "all_reduce (torch/distributed/distributed_c10d.py:1)"], "init"),
        (["wait (torch/distributed/distributed_c10d.py:1)", "init_process_group (torch/distributed/distributed_c10d.py:1)"], "collective"),
        (["_engine_run_backward (torch/autograd/graph.py:825)", "backward (torch/autograd/__init__.py:347)"], "backward"),
        (["readline (python3.11)", "interaction (pdb.py:435)", "user_line (bdb.py:5)"], "debugger"),
        (["recv (debugpy/_vendored/pydevd/pydevd.py:3)"], "debugger"),
        (["pthread_cond_timedwait (libc.so.6)", "take_gil (python3.11)", "PyEval_RestoreThread (python3.11)"], "gil"),
        (["_map_single (datasets/arrow_dataset.py:3)", "map (datasets/arrow_dataset.py:3)"], "tokenising"),
        (["clock_nanosleep (libc.so.6)", "time_sleep (python3.11)", "wait_for_file (t.py:4)"], "sleep_lock"),
        (["destroy_process_group (torch/distributed/distributed_c10d.py:3)"], "teardown"),
        (["_shutdown (threading.py:3)"], "teardown"),
        (["<module> (t.py:3)"], "unknown"),
        (["futex_wait_queue_me", "do_syscall_64"], "sleep_lock"),
    ],
)  # fmt: skip
def test_classes(frames: list[str], want: str) -> None:
    assert classify(frames) == want


@given(st.lists(st.text(max_size=60), max_size=30))
def test_any_stack_has_a_class(frames: list[str]) -> None:
    name, index = judge(frames)
    assert explain(name) == PHRASES[name]
    assert index == 0 or index < len(frames)


@given(st.integers(0, 10_000))
def test_facts_survive_what_happens_to_other_lines(seed: int) -> None:
    for lines in (PYSPY, GDB, FAULT, PYSTACK):
        plain = {essence(fact) for fact in stacks(lines)}
        assert plain <= {essence(fact) for fact in facts_of(disturbed(lines, seed), "stacks.txt")}
        assert plain <= {
            essence(fact)
            for fact in facts_of("\n".join([*lines, *(line[: len(line) // 2] for line in lines)]), "stacks.txt")
        }


def test_a_table_of_processes_whose_heading_grep_took() -> None:
    text = """dgx-3:~$ ps -eo pid,ppid,user,stat,wchan:18,lstart,pcpu,args | grep -E 'train|gdb' | grep -v grep
  41888   41801 ml       tl    ptrace_stop        Tue May  6 06:01:12 2025 38.1 /opt/venv/bin/python -u train.py
  77120   77118 ops      S     do_sys_poll        Tue May  6 13:37:03 2025  0.0 gdb -batch -p 41888 -ex bt"""
    rows = [fact for fact in facts_of(text) if fact.kind == "process"]

    assert [(row.who.pid, row["ppid"], row["stat"]) for row in rows] == [(41888, 41801, "tl"), (77120, 77118, "S")]
    assert rows[1]["command"] == "gdb -batch -p 41888 -ex bt"


def test_the_state_of_a_process_below_the_command_that_names_it() -> None:
    text = "dgx-3:~$ grep State /proc/41888/status\nState:\tt (tracing stop)"
    (row,) = [fact for fact in facts_of(text) if fact.kind == "process"]

    assert (row.who.pid, row["stat"]) == (41888, "t")

"""Stacks of real processes that were stuck, dumped with each tool (py-spy 0.4.3, pystack 1.7, gdb 13, CPython 3.8 to 3.13).

The files in dumps/ are what the tools printed, with shorter paths: CLASS.TOOL.txt, where CLASS says what the process did.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reading import facts_of, one

from whichrank.evidence import Evidence, read_piece
from whichrank.evidence.stack_class import classify
from whichrank.facts import Fact

DUMPS = Path(__file__).parent / "dumps"
# What the main thread did: a child waited for, a request, a pipe between processes, pdb, the interpreter's shutdown …
WANT = {
    "sub": "subprocess", "child": "subprocess", "http": "upload", "http-3.12": "upload", "http-3.13": "upload", "mpq": "sleep_lock", "pdb": "debugger",
    "teardown": "teardown", "queue": "sleep_lock", "aio": "sleep_lock", "sleep": "sleep_lock", "fread": "file_io", "fifo": "file_io", "sock": "sleep_lock",
}  # fmt: skip
# Native code alone doesn't say that the socket is an HTTP connection's.
NATIVE_ONLY = {"http.gdb.txt": "sleep_lock", "http-3.8.gdb.txt": "sleep_lock"}


def stacks(text: str, name: str = "stacks.txt") -> list[Fact]:
    return [fact for fact in facts_of(text, name) if fact.kind == "stack"]


def dump(name: str) -> str:
    return (DUMPS / name).read_text(encoding="utf-8")


CASES = sorted(path.name for path in DUMPS.iterdir() if path.name.rsplit(".", 2)[0] in WANT or path.name in NATIVE_ONLY)


@pytest.mark.parametrize("name", CASES)
def test_class_of_the_main_thread(name: str) -> None:
    found = stacks(dump(name), "stack.json" if name.endswith("json") else "stack.txt")
    mains = [fact for fact in found if fact["main"]]
    assert len(mains) == 1, [fact["frames"][-2:] for fact in found]
    what = name.split(".txt")[0].removesuffix(".json").rsplit(".", 1)[0]
    assert classify(mains[0]["frames"]) == NATIVE_ONLY.get(name, WANT.get(what))


@pytest.mark.parametrize(
    "name", ["timer-3.11.faulthandler.txt", "timer-3.13.faulthandler.txt", "printed.traceback.txt"]
)
def test_the_main_thread_is_not_the_pool_thread(name: str) -> None:
    pool, main = stacks(dump(name))
    assert (pool["main"], main["main"]) == (False, True)
    assert pool["frames"][-1].startswith("_bootstrap (")
    assert main["frames"][-1].startswith("<module> (")


def test_python_frames_take_the_place_of_the_interpreters() -> None:
    native, python = dump("http.gdb.txt"), dump("http.gdb-py-bt.txt")
    main = next(fact for fact in stacks(native + python) if fact["main"])
    assert main["frames"][0].startswith("__libc_recv ")
    assert main["frames"][-1].startswith("<module> (")
    assert not any(frame.startswith("_PyEval_EvalFrameDefault") for frame in main["frames"])
    assert classify(main["frames"]) == "upload"
    assert not [fact for fact in facts_of(python) if fact.kind == "exception"]


def test_frame_that_gdb_prints_in_the_arguments() -> None:
    text = """Thread 1 (Thread 0x7f41a8b22740 (LWP 28811) "python3.8"):
#0  0x00007f41a89d7b17 in __libc_recv (fd=4) from /lib/x86_64-linux-gnu/libpthread.so.0
#1  0x000000000056b6c2 in _PyEval_EvalFrameDefault (f=Frame 0x1f0b0, for file /w/fetch.py, line 24, in fetch (url='x'), throwflag=0) at ../Python/ceval.c:3489"""
    assert stacks(text)[0]["frames"][1] == "fetch (/w/fetch.py:24)"


def test_python_frames_below_an_interpreter_without_symbols() -> None:
    head = 'Thread 1 (Thread 0x7f41 (LWP 7) "python"):'
    native = (
        f"{head}\n#0  0x00007f3a in wait4 () from /lib/x86_64-linux-gnu/libc.so.6\n#1  0x000000000067c1a2 in ?? ()\n\n"
    )
    python = f'{head}\nTraceback (most recent call first):\n  File "/v/torch/_inductor/async_compile.py", line 412, in wait\n    x()\n'
    fact = next(fact for fact in stacks(native + python))
    assert fact["frames"] == ["wait4 (libc.so.6)", "wait (/v/torch/_inductor/async_compile.py:412)"]
    assert classify(fact["frames"]) == "compile"


def test_waiting_for_the_gil_in_py_bt() -> None:
    text = 'Thread 1 (Thread 0x7f41 (LWP 7) "python"):\nTraceback (most recent call first):\n  Waiting for the GIL\n  File "/w/t.py", line 3, in step'
    assert classify(stacks(text)[0]["frames"]) == "gil"


def test_process_of_a_process() -> None:
    text = (
        "Process 12: python w.py\nPython v3.11.7 (/usr/bin/python3.11)\nParent Process 7: python train.py --rank 3\n\n"
        + 'Thread 12 (idle): "MainThread"\n    wait (threading.py:327)\n'
    )
    fact = stacks(text)[0]
    assert (fact.who.pid, fact["ppid"], fact.rank) == (12, 7, None)


@pytest.mark.parametrize("name", sorted(path.name for path in DUMPS.iterdir() if path.suffix == ".txt"))
def test_a_dump_is_known_as_one_whatever_its_name(name: str) -> None:
    evidence = Evidence()
    read_piece("out.txt", (DUMPS / name).read_bytes(), evidence)
    assert (
        evidence.sources[0].kind == "stack" or name.startswith(("printed.", "http.gdb-py-bt")) or "proc-stack" in name
    )


HEADINGS = ["=== rank {rank} (pid {pid}) ===", "--- rank {rank} ---", "##### Rank {rank} #####", "==> out/rank{rank}.txt <==", "### node-07 rank={rank} pid={pid}"]  # fmt: skip


@pytest.mark.parametrize("heading", HEADINGS)
def test_several_ranks_in_one_file(heading: str) -> None:
    parts = [
        (3, 1, "teardown.pystack.txt"),
        (5, 2, "queue.py-spy.txt"),
        (9, 3, "timer-3.13.faulthandler.txt"),
        (12, 4, "queue.proc-stack.txt"),
    ]
    text = "\n".join(heading.format(rank=rank, pid=pid) + "\n\n" + dump(name) for rank, pid, name in parts)
    mains = [fact for fact in stacks(text) if fact["main"]]
    assert [(fact.rank, classify(fact["frames"])) for fact in mains] == [
        (3, "teardown"), (5, "sleep_lock"), (9, "compute"), (12, "sleep_lock"),
    ]  # fmt: skip
    if "node-07" in heading:
        assert {fact.who.host for fact in mains} == {"node-07"}
        assert mains[2].who.pid == 3


def test_a_rank_in_the_files_name_is_not_every_headings() -> None:
    text = "=== rank 0 ===\n" + dump("queue.py-spy.txt") + "=== rank 1 ===\n" + dump("pdb.py-spy.txt")
    assert [fact.rank for fact in stacks(text, "rank0-took-all-stacks.txt") if fact["main"]] == [0, 1]


@pytest.mark.parametrize(
    "line",
    ["== rank 0 of 8: step 41 ==", "[titan] 2026-09-15 05:12:05,101 - root - INFO - rank 5 pid 1245 ready", "-- step 3 --", "### Ranked list", "rank 3 pid 7"],
)  # fmt: skip
def test_no_heading(line: str) -> None:
    text = line + "\n" + "\n".join(f"[rank0] step {n} loss 2.1" for n in range(4)) + "\n" + dump("queue.py-spy.txt")
    assert {fact.rank for fact in stacks(text)} == {None}


def test_a_crash_that_faulthandler_reports() -> None:
    text = 'Fatal Python error: Segmentation fault\n\nCurrent thread 0x00007f1e (most recent call first):\n  File "/w/t.py", line 3 in step\n'
    fact = one("[rank3]: " + "[rank3]: ".join(text.splitlines(keepends=True)), "exception")
    assert (fact.rank, fact["type"], fact["message"]) == (3, "Fatal Python error", "Segmentation fault")
    for harmless in (
        "Aborted",
        "_enter_buffered_busy: could not acquire lock for <_io.BufferedWriter name='<stdout>'> at interpreter shutdown, possibly due to daemon threads",
    ):
        assert not [fact for fact in facts_of(f"Fatal Python error: {harmless}\n") if fact.kind == "exception"]


def test_c_stack_of_python_3_14_is_no_python_thread() -> None:
    text = (
        dump("timer-3.13.faulthandler.txt")
        + '\nCurrent thread\'s C stack trace (most recent call first):\n  Binary file "/usr/bin/python3", at _Py_DumpStack+0x31 [0x5be4c1]\n  <truncated rest of calls>\n'
    )
    assert len(stacks(text)) == 2


def test_a_hundred_threads_leave_the_main_thread_out() -> None:
    pool = dump("timer-3.13.faulthandler.txt").split("\n\n")[0]
    assert not any(fact["main"] for fact in stacks("\n\n".join([pool] * 3) + "\n...\n"))


@pytest.mark.parametrize(
    ("frames", "want"),
    [
        (["_MultiProcessingDataLoaderIter._try_get_data (torch/utils/data/dataloader.py:1251)"], "data_wait"),
        (["Tensor.backward (torch/_tensor.py:581)", "Trainer.step (t.py:3)"], "backward"),
        (["Trainer._save_checkpoint (transformers/trainer.py:3201)"], "checkpoint"),
        (["CheckpointManager.dcp_save (torchtitan/components/checkpoint.py:402)"], "checkpoint"),
        (["do_work.<locals>.<lambda> (t.py:3)"], "compute"),
        (["wait_woken", "sk_wait_data", "tcp_recvmsg_locked", "tcp_recvmsg", "vfs_read"], "sleep_lock"),
        (["anon_pipe_read", "vfs_read", "ksys_read"], "sleep_lock"),
        (["folio_wait_bit_common", "filemap_read", "ext4_file_read_iter", "vfs_read"], "file_io"),
        (["wait_woken", "n_tty_read", "tty_read", "vfs_read"], "debugger"),
        (["build_and_load (flashinfer/jit/core.py:301)", "step (t.py:2)"], "compile"),
        (["_build_document_sample_shuffle_indices (megatron/core/datasets/gpt_dataset.py:401)"], "tokenising"),
        (["acquire_read (vllm/distributed/device_communicators/shm_broadcast.py:510)"], "sleep_lock"),
        (["insert_to_usedpool (Objects/obmalloc.c:2044)", "_PyEval_EvalFrameDefault (Python/ceval.c:4769)"], "unknown"),
    ],
)  # fmt: skip
def test_classes(frames: list[str], want: str) -> None:
    assert classify(frames) == want


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from(sorted(path.name for path in DUMPS.iterdir() if path.suffix == ".txt")))
def test_damage_never_raises_and_never_moves_the_main_thread_into_a_pool(seed: int, name: str) -> None:
    rng = random.Random(seed)
    lines = dump(name).split("\n")
    if rng.random() < 0.3:
        rng.shuffle(lines)
    text = "\n".join(lines[: rng.randrange(len(lines) + 1)])
    for _ in range(rng.randrange(4)):
        at = rng.randrange(len(text) + 1)
        text = text[:at] + rng.choice(("\x00", "\ufffd", "(", '"', "\n", " File ")) + text[at + rng.randrange(3) :]
    for fact in stacks(text):
        assert fact["frames"] is not None
        assert fact.spot.line is not None

"""Tracebacks in all their forms."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reading import essence, facts_of, one, survivors

from whichrank.facts import Fact

SIMPLE = (
    "Traceback (most recent call last):",
    '  File "/work/train.py", line 391, in <module>',
    "    main()",
    "    ^^^^^^",
    '  File "/work/data/jsonl.py", line 58, in __next__',
    "    rec = json.loads(line)",
    "          ~~~~~~~~~~^^^^^^",
    '  File "/usr/lib/python3.12/json/decoder.py", line 355, in raw_decode',
    '    raise JSONDecodeError("Expecting value", s, err.value) from None',
    "json.decoder.JSONDecodeError: Expecting value: line 1 column 40961 (char 40960)",
)


def errors(text: str, name: str = "train.log") -> list[Fact]:
    return [fact for fact in facts_of(text, name) if fact.kind in ("exception", "cuda_oom") and not fact["caught"]]


@pytest.mark.parametrize(
    "prefix",
    [
        "",
        "[rank5]: ",
        "5: [rank5]: ",
        "[default5]:",
        "(Worker pid=77, ip=10.0.0.9) ",
        "2026-11-30T05:12:44.123456Z ",
        "[rank5]:[rank5]: ",
    ],
)
def test_prefixes(prefix: str) -> None:
    (fact,) = errors("\n".join(prefix + line for line in SIMPLE))
    assert fact["type"] == "json.decoder.JSONDecodeError"
    assert fact["message"] == "Expecting value: line 1 column 40961 (char 40960)"
    assert fact["frames"] == [
        "/work/train.py:391 <module>",
        "/work/data/jsonl.py:58 __next__",
        "/usr/lib/python3.12/json/decoder.py:355 raw_decode",
    ]
    assert fact["site"] == "/work/data/jsonl.py:58 __next__"
    assert fact.spot.line == len(SIMPLE)
    assert (fact.rank == 5) == ("rank5" in prefix)
    assert fact.who.pid == (77 if "pid=77" in prefix else None)


def test_interleaved_ranks() -> None:
    rng = random.Random(3)
    queues = {rank: [f"[rank{rank}]: {line}" for line in SIMPLE] for rank in range(4)}
    out = []
    while any(queues.values()):
        out.append(queues[rng.choice([rank for rank in queues if queues[rank]])].pop(0))
    found = errors("\n".join(out))
    assert sorted(fact.rank for fact in found if fact.rank is not None) == [0, 1, 2, 3]
    assert {len(fact["frames"]) for fact in found} == {3}


@pytest.mark.parametrize(
    "link",
    [
        "During handling of the above exception, another exception occurred:",
        "The above exception was the direct cause of the following exception:",
    ],
)
def test_chain(link: str) -> None:
    first, second = errors(
        "\n".join(
            (
                *SIMPLE,
                "",
                link,
                "",
                "Traceback (most recent call last):",
                '  File "/work/a.py", line 2, in f',
                "    g()",
                "RuntimeError: loader failed",
            )
        )
    )
    assert (first["type"], first["chained"]) == ("json.decoder.JSONDecodeError", None)
    assert (second["type"], second["chained"], second["site"]) == ("RuntimeError", True, "/work/a.py:2 f")


def test_two_tracebacks_that_are_no_chain() -> None:
    found = errors("\n".join((*SIMPLE, *SIMPLE)))
    assert [fact["chained"] for fact in found] == [None, None]


def test_exception_group() -> None:
    text = """  + Exception Group Traceback (most recent call last):
  |   File "/work/a.py", line 9, in <module>
  |     raise ExceptionGroup("two failed", errors)
  | ExceptionGroup: two failed (2 sub-exceptions)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    |   File "/work/a.py", line 3, in one
    |     int("x")
    | ValueError: invalid literal for int() with base 10: 'x'
    +---------------- 2 ----------------
    | Traceback (most recent call last):
    |   File "/work/a.py", line 5, in two
    |     {}["k"]
    | KeyError: 'k'
    +------------------------------------
"""
    outer, one_, two = errors(text)
    assert (outer["type"], outer["chained"]) == ("ExceptionGroup", True)
    assert (one_["type"], one_["site"], one_["chained"]) == ("ValueError", "/work/a.py:3 one", None)
    assert (two["type"], two["message"]) == ("KeyError", "'k'")


def test_syntax_error() -> None:
    (fact,) = errors(
        'Traceback (most recent call last):\n  File "<frozen runpy>", line 198, in _run_module_as_main\n  File "/work/train.py", line 3\n    foo(\n       ^\nSyntaxError: \'(\' was never closed'
    )
    assert (fact["type"], fact["frames"][-1]) == ("SyntaxError", "/work/train.py:3")


def test_rich_box() -> None:
    text = """╭─────────────────────────────── Traceback (most recent call last) ────────────────────────────────╮
│ /work/train.py:12 in main                                                                        │
│                                                                                                  │
│    11 │   x = 1                                                                                  │
│ ❱  12 │   step(x)                                                                                │
│                                                                                                  │
│ /opt/lib/python3.10/site-packages/acme/step.py:3 in step                                         │
│ ❱   3 │   raise ValueError("no")                                                                 │
╰──────────────────────────────────────────────────────────────────────────────────────────────────╯
ValueError: no
"""
    (fact,) = errors(text)
    assert (fact["type"], fact["site"], len(fact["frames"])) == ("ValueError", "/work/train.py:12 main", 2)


NCCL = (
    "[rank3]: Traceback (most recent call last):",
    '[rank3]:   File "/work/train.py", line 288, in main',
    "[rank3]:     loss.backward()",
    "[rank3]: torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.hpp:268, unhandled system error (run with NCCL_DEBUG=INFO for details), NCCL version 2.21.5",
    "[rank3]: ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error. ",
    "[rank3]: Last error:",
    "[rank3]: Error while creating shared memory segment /dev/shm/nccl-5eBAcc (size 7340384)",
    "[rank3]: Exception raised from create at /pytorch/torch/csrc/distributed/c10d/NCCLUtils.hpp:268 (most recent call first):",
    "[rank3]: C++ CapturedTraceback:",
    "[rank3]: #4 std::_Function_handler<std::string> from Logging.cpp:0",
)


def test_nccl_last_error() -> None:
    (fact,) = errors("\n".join(NCCL))
    assert fact["type"] == "torch.distributed.DistBackendError"
    assert fact["last_error"] == "Error while creating shared memory segment /dev/shm/nccl-5eBAcc (size 7340384)"
    assert fact.spot.line == 4


def test_last_error_on_the_same_line() -> None:
    (fact,) = errors(
        "RuntimeError: NCCL error in: x.cpp:1, internal error\nncclInternalError: Internal check failed.\nLast error: Net : Connect to 10.0.0.1<3> failed"
    )
    assert fact["last_error"] == "Net : Connect to 10.0.0.1<3> failed"


@pytest.mark.parametrize(
    ("last", "tried"),
    [
        (
            "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 11.62 GiB. GPU 4 has a total capacity of 79.15 GiB",
            "11.62 GiB",
        ),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 500.00 MiB. GPU 2 has", "500.00 MiB"),
        ("RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 15.78 GiB total capacity;", "2.00 GiB"),
        (
            "torch.cuda.OutOfMemoryError: HIP out of memory. Tried to allocate 32.00 GiB. GPU 0 has a total capacity of 191.98 GiB",
            "32.00 GiB",
        ),
        ("RuntimeError: CUDA error: out of memory", None),
        ("torch.AcceleratorError: CUDA error: out of memory", None),
    ],
)
@pytest.mark.parametrize("whole", [True, False])
def test_cuda_oom(last: str, tried: str | None, whole: bool) -> None:
    lines = [*SIMPLE[:3], last] if whole else [last]
    fact = one("\n".join("[rank2]: " + line for line in lines), "cuda_oom")
    assert (fact.rank, fact["tried"], fact["caught"]) == (2, tried, None)


@pytest.mark.parametrize(
    "last",
    [
        "RuntimeError: [enforce fail at alloc_cpu.cpp:83] . DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes",
        "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.",
        "MemoryError",
    ],
)
def test_host_memory_is_no_cuda_oom(last: str) -> None:
    (fact,) = errors("\n".join([*SIMPLE[:3], last]))
    assert fact.kind == "exception"


@pytest.mark.parametrize(
    "line",
    [
        "[job 30771 11:17:41] [rank2] WARNING caught torch.OutOfMemoryError in validation, retrying with half the batch (ok)",
        "2026-11-30 05:12:44 [rank2] WARNING sample 7: skipped, ValueError: bad header",
        "[rank2] retrying after ConnectionResetError: [Errno 104]",
    ],
)
def test_caught(line: str) -> None:
    fact = one(line, "exception")
    assert (fact.rank, fact["caught"]) == (2, True)


@pytest.mark.parametrize(
    "line",
    [
        "2026-11-30 [rank2] OOM in forward, retrying: CUDA out of memory. Tried to allocate 2.00 GiB",
        "| WARNING: ran out of memory: CUDA out of memory. Tried to allocate 2 GiB",
    ],
)
def test_oom_mentioned(line: str) -> None:
    assert one(line, "cuda_oom")["caught"] is True


@pytest.mark.parametrize(
    "line",
    [
        "/opt/torch/utils/checkpoint.py:242: UserWarning: None of the inputs have requires_grad=True.",
        "INFO ErrorHandler installed",
        "step 3 error: 0.02",
        "ncclSystemError: System call failed.",
        "  TORCH_NCCL_ASYNC_ERROR_HANDLING=1",
        "2026-11-30 05:12:44 loss 1.0 GradientError: 0.1",
    ],
)
def test_no_exception(line: str) -> None:
    assert not [fact for fact in facts_of(line) if fact.kind in ("exception", "cuda_oom")]


@pytest.mark.parametrize(
    ("line", "type_", "rank"),
    [
        ("[rank11]: torch.AcceleratorError: CUDA error: unspecified launch failure", "torch.AcceleratorError", 11),
        (
            "[rank0]: RuntimeError: [../gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv operation to complete",
            "RuntimeError",
            0,
        ),
        (
            "Exception: Process 3 exited with error code 10 and exception: torch.distributed.DistBackendError: NCCL error in: x.cpp:93, unhandled system error",
            "torch.distributed.DistBackendError",
            None,
        ),
    ],
)
def test_bare_last_line(line: str, type_: str, rank: int | None) -> None:
    (fact,) = errors(line)
    assert (fact["type"], fact.rank, fact["bare"], fact["frames"]) == (type_, rank, True, [])
    assert fact.who.local_rank == (3 if "Process 3" in line else None)


def test_launcher() -> None:
    (child,) = errors(
        'Traceback (most recent call last):\n  File "/opt/bin/torchrun", line 8, in <module>\n    sys.exit(main())\n  File "/opt/lib/python3.11/site-packages/torch/distributed/launcher/api.py", line 270, in launch_agent\n    raise ChildFailedError(\ntorch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n============'
    )
    assert child["launcher"] is True
    (record,) = errors(
        'Traceback (most recent call last):\n  File "/opt/lib/python3.11/site-packages/torch/distributed/elastic/multiprocessing/errors/__init__.py", line 355, in wrapper\n    return f()\n  File "/work/train.py", line 1, in main\n    x\nNameError: name \'x\' is not defined'
    )
    assert record["launcher"] is None


def test_spawn() -> None:
    text = """Traceback (most recent call last):
  File "/work/main.py", line 9, in <module>
    mp.spawn(run, nprocs=2)
  File "/opt/lib/python3.11/site-packages/torch/multiprocessing/spawn.py", line 328, in spawn
    return start_processes(fn)
torch.multiprocessing.spawn.ProcessRaisedException:

-- Process 1 terminated with the following error:
Traceback (most recent call last):
  File "/opt/lib/python3.11/site-packages/torch/multiprocessing/spawn.py", line 90, in _wrap
    fn(i, *args)
  File "/work/main.py", line 4, in run
    raise ValueError("x")
ValueError: x
"""
    outer, inner = errors(text)
    assert (outer["launcher"], inner["launcher"], inner["type"], inner.who.local_rank) == (True, None, "ValueError", 1)


def test_ray_task_error() -> None:
    text = """Traceback (most recent call last):
  File "/work/driver.py", line 3, in <module>
    ray.get(f.remote())
  File "/opt/lib/python3.11/site-packages/ray/_private/worker.py", line 2782, in get
    values, debugger_breakpoint = worker.get_objects(refs)
ray.exceptions.RayTaskError(ValueError): \x1b[36mray::Trainer.step()\x1b[39m (pid=123, ip=10.0.0.1, actor_id=8bd8, repr=<x>)
  File "/work/trainer.py", line 5, in step
    raise ValueError("x")
ValueError: x
"""
    outer, inner = errors(text)
    assert (outer["launcher"], outer["inner"]) == (True, "ValueError")
    assert (inner["type"], inner.who.pid, inner.who.host, inner["site"]) == (
        "ValueError",
        123,
        "10.0.0.1",
        "/work/trainer.py:5 step",
    )


def test_ray_actor_died() -> None:
    text = 'Traceback (most recent call last):\n  File "/opt/lib/python3.12/site-packages/ray/_private/worker.py", line 932, in get_objects\n    raise value\nray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n\tclass_name: WorkerDict\n\tpid: 30646\n\tip: 10.9.1.7\nThe actor is dead'
    fact = one(text, "exit")
    assert (fact.who.pid, fact.who.host, fact["launcher"]) == (30646, "10.9.1.7", "ray")


def test_dataloader_worker() -> None:
    text = "\n".join(
        (
            *SIMPLE[:3],
            "RuntimeError: Caught KeyError in DataLoader worker process 3.",
            "Original Traceback (most recent call last):",
            '  File "/opt/lib/python3.11/site-packages/torch/utils/data/_utils/worker.py", line 308, in _worker_loop',
            "    data = fetcher.fetch(index)",
            '  File "/work/data.py", line 7, in __getitem__',
            '    return self.d["x"]',
            "KeyError: 'x'",
        )
    )
    outer, inner = errors(text)
    assert (outer["chained"], outer["dataloader_worker"], inner["type"], inner["chained"], inner["site"]) == (
        True,
        3,
        "KeyError",
        None,
        "/work/data.py:7 __getitem__",
    )


def test_cut_traceback_is_told_as_such() -> None:
    (fact,) = errors("\n".join("[rank1]: " + line for line in SIMPLE[:5]))
    assert (fact["cut"], fact["type"], len(fact["frames"]), fact.rank) == (True, None, 2, 1)


def test_title_lost() -> None:
    (fact,) = errors("\n".join(SIMPLE[1:]))
    assert (fact["type"], len(fact["frames"])) == ("json.decoder.JSONDecodeError", 3)


@pytest.mark.parametrize(
    "last",
    [
        "KeyboardInterrupt",
        "AssertionError",
        "acme.errors.Broken: cold",
        "SystemExit: 1",
        "MyOwn: text",
        "torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError",
    ],
)
def test_kinds_of_last_lines(last: str) -> None:
    (fact,) = errors("\n".join([*SIMPLE[:3], last]))
    assert fact["type"] == last.split(":")[0]


@given(st.integers(0, 2**32))
def test_other_lines_do_not_matter(seed: int) -> None:
    lines = (
        ["[rank7]: " + line for line in SIMPLE]
        + list(NCCL)
        + ["[rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 6.75 GiB. GPU 2 has"]
        + list(SIMPLE)
    )
    assert survivors(lines, seed) >= {repr(essence(fact)) for fact in facts_of("\n".join(lines))}

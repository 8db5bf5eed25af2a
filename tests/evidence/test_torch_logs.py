"""TORCH_LOGS and TORCH_DISTRIBUTED_DEBUG, as torch 2.13 prints them."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reading import disturbed, facts_of, one

HEAD = "[rank{rank}]:{level}1130 11:30:{second:02d}.087000 8530 torch/{place}] "


def said(
    text: str, place: str = "_dynamo/symbolic_convert.py:5335", rank: int = 3, level: str = "I", second: int = 43
) -> str:
    return HEAD.format(rank=rank, level=level, second=second, place=place) + text


@pytest.mark.parametrize(
    ("text", "phase", "state", "what"),
    [
        ("[0/0] Step 1: torchdynamo start tracing inner /opt/lib/external_utils.py:67", "trace", "begun", "inner"),
        ("[0/0_1] Step 1: torchdynamo start tracing inner /opt/lib/external_utils.py:67", "trace", "begun", "inner"),
        ("Step 1: torchdynamo start tracing forward", "trace", "begun", "forward"),  # torch 2.0
        ("[0/0] torchdynamo start compiling inner /opt/lib/external_utils.py:67, stack (elided 5 frames):", "trace", "begun", "inner"),
        ("[0/0] Step 1: torchdynamo done tracing inner (RETURN_VALUE)", "trace", "done", "inner"),
        ("[0/0] Step 2: calling compiler function inductor", "backend", "begun", "inductor"),
        ("[0/0] Step 2: done compiler function inductor", "backend", "done", "inductor"),
        ("[0/0] Step 3: torchinductor compiling FORWARDS graph 0", "graph", "begun", "FORWARDS graph 0"),
        ("[0/0] Step 3: torchinductor done compiling BACKWARDS graph 12", "graph", "done", "BACKWARDS graph 12"),
        ("[0/1] [__recompiles] Recompiling function inner in /opt/lib/external_utils.py:67", "recompile", "begun", "inner"),
    ],
)  # fmt: skip
def test_phases(text: str, phase: str, state: str, what: str) -> None:
    fact = one(said(text), "compile")
    assert (fact.rank, fact["phase"], fact["state"], fact["what"], fact.clock) == (3, phase, state, what, "wall")
    assert fact["frame"] == (text[1:4] if text.startswith("[") else None)


def test_autotune() -> None:
    table = (
        "AUTOTUNE mm(4096x4096, 4096x11008)\n"
        "  triton_mm_17 0.2151 ms 100.0% ACC_TYPE='tl.float32', BLOCK_K=32\n"
        "  mm 0.2243 ms 95.9%\n"
        "SingleProcess AUTOTUNE benchmarking takes 3.2011 seconds and 41.5003 seconds precompiling for 20 choices\n"
    )
    begun, ended = (fact for fact in facts_of(table) if fact.kind == "compile")
    assert begun["what"] == "mm(4096x4096, 4096x11008)"
    assert ended["seconds"] == pytest.approx(44.7014)


def test_limit() -> None:
    fact = one(
        said("[3/8] torch._dynamo hit config.recompile_limit (8)", "_dynamo/convert_frame.py:906", level="W"), "compile"
    )
    assert (fact["state"], fact["limit"]) == ("limit", 8)


def test_unused_parameters() -> None:
    """In the message of DDP's error, below its traceback: the rank is the one in DDP's group."""
    text = (
        "[rank2]: RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one.\n"
        "[rank2]: Parameters which did not receive grad for rank 2: aux.bias, aux.weight\n"
        "[rank2]: Parameter indices which did not receive grad for rank 2: 2 3"
    )
    names, indices = (fact for fact in facts_of(text) if fact.kind == "unused_parameters")
    assert (names.rank, names["group_rank"], names["names"]) == (2, 2, "aux.bias, aux.weight")
    assert indices["indices"] == "2 3"


def test_store_lines() -> None:
    text = "[I1130 11:26:46.893441536 socket.cpp:955] [c10d] The client socket has connected to [::ffff:10.4.0.7]:29624 on SocketImpl(fd=13, addr=[::ffff:10.4.0.9]:51928, remote=[::ffff:10.4.0.7]:29624)."
    fact = one(text, "store_connected")
    assert (fact["address"], fact["port"]) == ("10.4.0.7", 29624)
    fact = one("[I1130 11:26:45.222168126 debug.cpp:48] [c10d] The debug level is set to DETAIL.", "config")
    assert (fact["name"], fact["value"]) == ("TORCH_DISTRIBUTED_DEBUG", "DETAIL")


@pytest.mark.parametrize(
    "text", ["compiling step 3", "AUTOTUNE is on", "step 4: torchinductor is fast", "Recompiling with -O2"]
)
def test_what_a_program_says_of_compiling_is_no_fact(text: str) -> None:
    assert not [fact for fact in facts_of(f"[rank1]: {text}") if fact.kind == "compile"]


@given(st.integers(0, 2**32))
def test_survives_noise(seed: int) -> None:
    rng = random.Random(seed)
    rows = [
        said(
            f"[{n}/0] Step 3: torchinductor {rng.choice(('', 'done '))}compiling FORWARDS graph {n}",
            rank=rng.randrange(3),
            second=n,
        )
        for n in range(9)
    ]

    def told(text: str) -> list[tuple[object, ...]]:
        return [(f.rank, f["frame"], f["state"], f["what"]) for f in facts_of(text) if f.kind == "compile"]

    assert told(disturbed(rows, seed)) == told("\n".join(rows))

r"""What PyTorch says of itself with TORCH_LOGS and TORCH_DISTRIBUTED_DEBUG: compilation, DDP's unused parameters, the store.

Formats: torch 2.0 to 2.13 (torch/_dynamo/symbolic_convert.py, output_graph.py, convert_frame.py, guards.py,
torch/_inductor/compile_fx.py, select_algorithm.py; reducer.cpp, socket.cpp, debug.cpp). `[0/1]` is the compiled frame and
how often it was compiled again. Each phase prints a line when it begins and, except recompilation, one when it is done.

>>> from whichrank.evidence.sample import facts
>>> for fact in facts(READER, '''[rank1]:I0730 09:30:15.208000 8530 torch/_inductor/compile_fx.py:1302] [0/0] Step 3: torchinductor compiling FORWARDS graph 0
... [rank1]:I0730 09:44:59.576000 8530 torch/_inductor/compile_fx.py:1205] [0/0] Step 3: torchinductor done compiling FORWARDS graph 0
... [rank1]:V0730 09:45:03.029000 8530 torch/_dynamo/guards.py:5396] [0/1] [__recompiles] Recompiling function forward in /w/net.py:67
... [rank1]: Parameter indices which did not receive grad for rank 1: 2 3'''): print(fact.kind, fact.rank, dict(fact.values))
compile 1 {'phase': 'graph', 'state': 'begun', 'frame': '0/0', 'what': 'FORWARDS graph 0'}
compile 1 {'phase': 'graph', 'state': 'done', 'frame': '0/0', 'what': 'FORWARDS graph 0'}
compile 1 {'phase': 'recompile', 'state': 'begun', 'frame': '0/1', 'what': 'forward'}
unused_parameters 1 {'group_rank': 1, 'indices': '2 3'}
"""

from __future__ import annotations

from typing import Any

from whichrank.evidence.scan import Line, Reader

_FRAME = r"(?:\[(?P<frame>\d+/\d+)(?:_\d+)?\] )?(?:\[__\w+\] )?"


def _summed(values: dict[str, Any]) -> None:
    """Benchmarking and precompiling together, in seconds."""
    values["seconds"] = float(values.pop("benchmark")) + float(values.pop("precompile", 0))


COMPILE = (
    Line(
        "compile",
        "torchdynamo start tracing",
        _FRAME + r"Step 1: torchdynamo start tracing (?P<what>\S+)",
        {"phase": "trace", "state": "begun"},
    ),
    Line(
        "compile",
        "torchdynamo start compiling",
        _FRAME + r"torchdynamo start compiling (?P<what>\S+)",
        {"phase": "trace", "state": "begun"},
    ),
    Line(
        "compile",
        "torchdynamo done tracing",
        _FRAME + r"Step 1: torchdynamo done tracing (?P<what>\S+)",
        {"phase": "trace", "state": "done"},
    ),
    Line(
        "compile",
        "calling compiler function",
        _FRAME + r"Step 2: calling compiler function (?P<what>\S+)",
        {"phase": "backend", "state": "begun"},
    ),
    Line(
        "compile",
        "done compiler function",
        _FRAME + r"Step 2: done compiler function (?P<what>\S+)",
        {"phase": "backend", "state": "done"},
    ),
    Line(
        "compile",
        "torchinductor compiling",
        _FRAME + r"Step 3: torchinductor compiling (?P<what>\S+ graph \d+)",
        {"phase": "graph", "state": "begun"},
    ),
    Line(
        "compile",
        "torchinductor done compiling",
        _FRAME + r"Step 3: torchinductor done compiling (?P<what>\S+ graph \d+)",
        {"phase": "graph", "state": "done"},
    ),
    Line(
        "compile",
        "Recompiling function",
        _FRAME + r"Recompiling function (?P<what>\S+) in \S+:\d+",
        {"phase": "recompile", "state": "begun"},
    ),
    Line(
        "compile",
        ("config.recompile_limit", "config.cache_size_limit"),
        r"torch\._dynamo hit config\.(?:recompile_limit|cache_size_limit) \((?P<limit>\d+)\)",
        {"phase": "recompile", "state": "limit"},
    ),
    Line(
        "compile",
        "AUTOTUNE benchmarking takes",
        r"AUTOTUNE benchmarking takes (?P<benchmark>\d+(?:\.\d+)?) seconds(?: and (?P<precompile>\d+(?:\.\d+)?) seconds precompiling)?",
        {"phase": "autotune", "state": "done"},
        tidy=_summed,
    ),
    Line("compile", "AUTOTUNE ", r"^AUTOTUNE (?P<what>\w+\([\dx, ]+\))\s*$", {"phase": "autotune", "state": "done"}),
)
DEBUG = (
    Line(
        "unused_parameters",
        "which did not receive grad for rank",
        r"Parameters which did not receive grad for rank (?P<group_rank>\d+): (?P<names>\S.*?)\s*$",
    ),
    Line(
        "unused_parameters",
        "which did not receive grad for rank",
        r"Parameter indices which did not receive grad for rank (?P<group_rank>\d+): (?P<indices>\d[\d ]*?)\s*$",
    ),
    Line(
        "config",
        "The debug level is set to",
        r"\[c10d\] (?P<name>The debug level) is set to (?P<value>OFF|INFO|DETAIL)\b",
        tidy=lambda values: values.update(name="TORCH_DISTRIBUTED_DEBUG"),
    ),
    Line(
        "store_connected",
        "The client socket has connected to",
        r"\[c10d\] The client socket has connected to \[(?:::ffff:)?(?P<address>[^\]]+)\]:(?P<port>\d+) on",
    ),
)

READER = Reader(
    "torch_logs",
    lines=COMPILE + DEBUG,
    title="compilation and DDP: TORCH_LOGS, AUTOTUNE tables, unused parameters",
    versions="PyTorch 2.0 to 2.13",
    collect=("export TORCH_LOGS=dynamo,inductor,recompiles",),
)

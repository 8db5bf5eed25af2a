"""The job is started for two nodes, and the second never is."""

from lab.faults.fault import Drawn, Fault, Truth
from lab.faults.ports import free
from lab.faults.scene import Scene

ANY = ["host_stuck", "dead", "network", "no_hang", "undecided"]


def lay_out(scene: Scene) -> None:
    port, patience = free(), int(scene.drawn.timeout_s)
    common = ["--nnodes", "2", "--nproc-per-node", str(scene.drawn.world // 2)]
    if scene.drawn.variant == "static":
        where = ["--node-rank", "0", "--master-addr", "127.0.0.1", "--master-port", str(port)]
        rendezvous = ["--rdzv-conf", f"timeout={patience}"]
    else:
        where = ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", "pretrain"]
        rendezvous = ["--rdzv-conf", f"join_timeout={patience}"]
    scene.launches = [[*common, *where, *rendezvous]]


def truth(drawn: Drawn) -> Truth:
    missing = [*range(drawn.world // 2, drawn.world)]
    why = f"only the first of two nodes was started: ranks {missing} never came"
    return Truth("init_rendezvous", ANY, None, why, bare_also=(), culprits_also=[missing])


FAULT = Fault(
    "world_incomplete", "torchrun --nnodes 2 on one node alone, with a static and a c10d rendezvous", truth,
    variants=("static", "c10d"), lay_out=lay_out, moves=lambda drawn: {"at": "launch"},
)  # fmt: skip

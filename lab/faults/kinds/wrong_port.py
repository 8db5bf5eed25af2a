"""A rank, or a whole node, looks for the others at another port."""

from lab.faults.fault import Drawn, Fault, Truth
from lab.faults.kinds.world_incomplete import ANY
from lab.faults.ports import free
from lab.faults.scene import Scene


def lay_out(scene: Scene) -> None:
    drawn, right, other = scene.drawn, free(), free()
    if drawn.variant == "rank":
        scene.settings["ports"] = {str(drawn.victim): other}
        return
    scene.launches = [
        ["--nnodes", "2", "--node-rank", str(node), "--nproc-per-node", str(drawn.world // 2), "--master-addr", "127.0.0.1",
         "--master-port", str(port), "--rdzv-conf", f"timeout={int(drawn.timeout_s)}"]
        for node, port in ((0, right), (1, other))
    ]  # fmt: skip


def truth(drawn: Drawn) -> Truth:
    if drawn.variant == "rank":
        why = f"rank {drawn.victim} looks for the store at a port where nobody listens"
        return Truth("init_rendezvous", ANY, [drawn.victim], why, bare_also=())
    apart = [*range(drawn.world // 2, drawn.world)]
    why = "the second node looks for the store at a port where nobody listens"
    return Truth("init_rendezvous", ANY, apart, why, bare_also=(), culprits_also=[[]])


FAULT = Fault(
    "wrong_port", "MASTER_PORT of one rank, or of one of two launchers, is another than the others'", truth,
    variants=("rank", "node"), lay_out=lay_out,
    moves=lambda drawn: {"at": "start" if drawn.variant == "rank" else "launch"},
)  # fmt: skip

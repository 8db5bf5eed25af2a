"""The link between two hosts (network namespaces) slows to a crawl, or is cut."""

from collections.abc import Sequence

from lab.faults.fault import Drawn, Fault, Truth
from lab.faults.hosts import ADDRESSES
from lab.faults.incident import Incident
from lab.faults.scene import Scene

PORT = 29541


def over_two(scene: Scene, ports: Sequence[int] = (PORT, PORT)) -> None:
    """Half of the ranks on each host, under a launcher each."""
    scene.launches = [
        ["--nnodes", "2", "--node-rank", str(node), "--nproc-per-node", str(scene.drawn.world // 2),
         "--master-addr", ADDRESSES[0], "--master-port", str(ports[node])]
        for node in (0, 1)
    ]  # fmt: skip


def slow(incident: Incident) -> None:
    assert incident.hosts
    for node in (0, 1):
        incident.hosts.slow(node)
    incident.begins()


def cut(incident: Incident) -> None:
    assert incident.hosts
    incident.hosts.cut(incident.drawn.seed % 2)
    incident.begins()


def truth(drawn: Drawn) -> Truth:
    how = "crawls" if drawn.fault == "link_slow" else "is down"
    why = f"the link between node-a and node-b {how} from step {drawn.step} on"
    return Truth("network", ["network"], None, why, bare_also=["undecided"])


def lay_out_slow(scene: Scene) -> None:
    over_two(scene)
    scene.settings["width"] = 640  # 10 MB of gradients a step: on a sound link 50 ms


SLOW = Fault(
    "link_slow", "tbf lets 20 kB/s through between two network namespaces with a torchrun each", truth,
    lay_out=lay_out_slow, during=slow, needs=("root", "namespaces"),
)  # fmt: skip
CUT = Fault(
    "link_cut", "one end of the veth pair between two network namespaces goes down", truth,
    lay_out=over_two, during=cut, needs=("root", "namespaces"),
)  # fmt: skip

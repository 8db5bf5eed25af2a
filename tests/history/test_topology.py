"""Topology files: Slurm's, tables, JSON."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whichrank.errors import UsageProblem
from whichrank.history.topology import hosts, read


def test_scontrol_show_topology() -> None:
    text = "SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=gn[01-02]\nSwitchName=spine Level=1 LinkSpeed=1 Nodes=gn[01-04] Switches=leaf[1-2]\nSwitchName=leaf2 Level=0 LinkSpeed=1 Nodes=gn[03-04]"

    # the lowest switch of a node comes first
    assert read(text)["switch"]["gn01"] == "leaf1"


def test_kubectl_get_nodes_with_labels() -> None:
    text = (
        "NAME    STATUS   ROLES    AGE   VERSION   ZONE      RACK\n"
        "gpu-a   Ready    <none>   12d   v1.31.2   eu-1a     r07\n"
        "gpu-b   Ready    <none>   12d   v1.31.2   eu-1b     r08\n"
    )

    assert read(text) == {"zone": {"gpu-a": "eu-1a", "gpu-b": "eu-1b"}, "rack": {"gpu-a": "r07", "gpu-b": "r08"}}


def test_json_and_full_names() -> None:
    assert read('{"rack": {"r1": ["GN01.cluster.example", "gn02"]}}') == {"rack": {"gn01": "r1", "gn02": "r1"}}


@pytest.mark.parametrize("text", ["", "hello", "{", "host\n", "{}", "SwitchName=a Switches=b"])
def test_what_is_none_is_told(text: str) -> None:
    with pytest.raises(UsageProblem):
        read(text)


@given(st.text(alphabet="gn0123456789[]-, ", max_size=60))
def test_host_lists_never_break(text: str) -> None:
    assert all(isinstance(name, str) for name in hosts(text))

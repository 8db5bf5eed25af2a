"""Which node hangs on which rack or switch: a file that the user gives.

Slurm's topology.conf or `scontrol show topology`, a table with a heading whose first column names the node (CSV, TSV or
aligned, as `kubectl get nodes -L topology.kubernetes.io/zone` prints it), or JSON {"rack": {"r1": ["n1", "n2"]}}.

>>> read("SwitchName=s1 Level=0 Nodes=gn[01-02,07]\\nSwitchName=core Level=1 Switches=s[1-2]")
{'switch': {'gn01': 's1', 'gn02': 's1', 'gn07': 's1'}}
>>> read("host,rack,power\\ngn01,r1,a\\ngn02,r1,b")
{'rack': {'gn01': 'r1', 'gn02': 'r1'}, 'power': {'gn01': 'a', 'gn02': 'b'}}
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator

from whichrank.errors import UsageProblem
from whichrank.job.names import canon

MOST = 200_000  # hosts
_SWITCH = re.compile(r"SwitchName=(\S+).*?\bNodes=(\S+)", re.I)
_HEAD = re.compile(r"^(?:host(?:name)?|node(?:name|list)?|name|machine)$", re.I)
_NOTHING = ("", "-", "<none>", "none", "null", "(null)")


def read(text: str) -> dict[str, dict[str, str]]:
    """Kind of domain -> host (short name) -> its domain. Raises UsageProblem where nothing in it is known."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for kind, host, domain in _rows(text):
        if name := canon(host):
            found[kind].setdefault(name, domain)
    if not any(found.values()):
        raise UsageProblem(
            "no topology in that file: give Slurm's topology.conf, or a table with a heading such as `host,rack`"
        )
    return dict(found)


def _rows(text: str) -> Iterator[tuple[str, str, str]]:
    if text.lstrip().startswith("{"):
        yield from _json(text)
        return
    switches = _SWITCH.findall(text)
    for switch, nodes in switches:
        for host in hosts(nodes):
            yield "switch", host, switch
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    if switches or not lines:
        return
    mark = "," if "," in lines[0] else ";" if ";" in lines[0] else None

    def split(line: str) -> list[str]:
        return [cell.strip() for cell in line.split(mark)]

    head = split(lines[0])
    if not head or not _HEAD.match(head[0]):
        return
    for line in lines[1 : MOST + 1]:
        cells = split(line)
        # kubectl prints the labels last, behind columns that may hold blanks
        pairs = (
            zip(head[1:], cells[1:], strict=False)
            if len(cells) <= len(head)
            else zip(reversed(head[1:]), reversed(cells), strict=False)
        )
        for kind, domain in pairs:
            if domain.lower() not in _NOTHING and kind.upper() not in ("STATUS", "ROLES", "AGE", "VERSION"):
                yield kind.lower(), cells[0], domain


def _json(text: str) -> Iterator[tuple[str, str, str]]:
    try:
        loaded = json.loads(text)
    except ValueError as error:
        raise UsageProblem(f"the topology is no valid JSON: {error}") from error
    for kind, domains in loaded.items():
        for domain, names in domains.items() if isinstance(domains, dict) else ():
            for host in names if isinstance(names, list) else [names]:
                yield str(kind), str(host), str(domain)


def hosts(text: str) -> list[str]:
    """Slurm's host list, spelled out.

    >>> hosts("gn[01-03,10],login"), hosts("r[1-2]n[1-2]")
    (['gn01', 'gn02', 'gn03', 'gn10', 'login'], ['r1n1', 'r1n2', 'r2n1', 'r2n2'])
    """
    found: list[str] = []
    for part in re.findall(r"[^,\[\]]+(?:\[[^\]]*\][^,\[]*)*", text):
        names = [""]
        for plain, bracket in re.findall(r"([^\[\]]+)|\[([^\]]*)\]", part):
            ends = [plain] if plain else [number for piece in bracket.split(",") for number in _numbers(piece)]
            names = [name + end for name in names for end in ends][:MOST]
        found += names
    return found[:MOST]


def _numbers(piece: str) -> list[str]:
    low, _, high = piece.partition("-")
    if not high or not (low.isdecimal() and high.isdecimal()) or int(high) - int(low) > MOST:
        return [piece]
    return [str(number).zfill(len(low)) for number in range(int(low), int(high) + 1)]

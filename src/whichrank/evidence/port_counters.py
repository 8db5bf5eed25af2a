r"""Counters of network interfaces beside ethtool's: `ip -s link`, `ifconfig`, /proc/net/dev, nstat, netstat -s, ibqueryerrors.

Formats: iproute2 4.x to 6.x (the columns by their header: `overrun` became `missed`), net-tools 1.60 and 2.10 (its
spelling of "retransmitted" changed), Linux /proc/net/dev, infiniband-diags 44. Counted since the interface or the machine
came up: only what grows between two snapshots tells. `nstat` without `-a` prints the growth since it was last asked,
which is nobody's second snapshot: left out.

>>> from whichrank.evidence.sample import facts
>>> text = '''Inter-|   Receive                                                |  Transmit
...  face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
...   eth0: 2220304729   61475    7    0    0     7          0         0  4219693   37783    0    0    0     0       2          0'''
>>> [(fact["interface"], fact["name"], fact["value"]) for fact in facts(READER, text)]
[('eth0', 'rx_errors', 7), ('eth0', 'tx_errors', 0), ('eth0', 'tx_carrier_errors', 2)]
>>> [(fact["name"], fact["value"]) for fact in facts(READER, "TcpOutSegs                      108439             0.0")]
[('TcpOutSegs', 108439)]
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from whichrank.evidence.scan import Line, Reader, Row
from whichrank.evidence.tool import Tool, Tools
from whichrank.facts import Fact, Identity

_TOLD = {
    ("RX", "errors"): "rx_errors",
    ("TX", "errors"): "tx_errors",
    ("TX", "carrier"): "tx_carrier_errors",
    ("RX errors", "crc"): "rx_crc_errors",
}


class LinkStats:
    """The counters under an interface of `ip -s link` (names, then numbers) and of `ifconfig` (name and number)."""

    _HEADER = re.compile(r"^\s+(?P<way>[RT]X(?: errors)?):\s+(?P<names>[a-z][a-z ]+?)\s*$")
    _NUMBERS = re.compile(r"^\s+\d+(?:\s+\d+)+\s*$")
    _IFCONFIG = re.compile(
        r"^\s+(?P<way>[RT]X) errors:? ?(?P<errors>\d+)  ?dropped:?.*?(?:carrier:? ?(?P<carrier>\d+).*)?$"
    )

    def __init__(self) -> None:
        self.way = ""
        self.names: list[str] = []

    def read(self, text: str) -> list[tuple[str, int]] | None:
        """The telling counters of this line; None if it is no line of counters."""
        if match := self._HEADER.match(text):
            self.way, self.names = match["way"], match["names"].split()
            return []
        if self.names and self._NUMBERS.match(text):
            pairs = zip(self.names, text.split(), strict=False)
            found = [(_TOLD[self.way, name], int(value)) for name, value in pairs if (self.way, name) in _TOLD]
            self.names = []
            return found
        if match := self._IFCONFIG.match(text):
            found = [(_TOLD[match["way"], "errors"], int(match["errors"]))]
            return found + ([("tx_carrier_errors", int(match["carrier"]))] if match["carrier"] else [])
        return None


class ProcNetDev(Tool):
    """/proc/net/dev: sixteen numbers for each interface."""

    _ROW = re.compile(r"^\s*(?P<interface>[A-Za-z][\w.@-]{0,20}):\s*(?P<numbers>\d+(?:\s+\d+){15})\s*$")

    def read(self, row: Row) -> bool:
        if "|bytes" in row.text and " face " in row.text:
            return True
        match = self._ROW.match(row.text)
        if match is None:
            return row.text.startswith("Inter-|")
        numbers = [int(number) for number in match["numbers"].split()]
        if match["interface"] != "lo":
            for name, at in (("rx_errors", 2), ("tx_errors", 10), ("tx_carrier_errors", 14)):
                self.add(row, "counter", name=name, value=numbers[at], interface=match["interface"], snapshot=1)
        return True


class QueryErrors(Tool):
    """`ibqueryerrors`: the node, then a line for each of its ports with the counters that are not zero."""

    _NODE = re.compile(r'^Errors for (?:0x[0-9a-f]+ )?"(?P<name>[^"]+)"')
    _PORT = re.compile(r"^\s+GUID 0x[0-9a-f]+ port (?P<port>\w+): (?P<pairs>\[.*\])\s*$")

    def __init__(self) -> None:
        super().__init__()
        self.node: str | None = None

    def read(self, row: Row) -> bool:
        if match := self._NODE.match(row.text):
            self.node = match["name"]
            return True
        if self.node is None or not (match := self._PORT.match(row.text)):
            return False
        # A channel adapter is described as "host device"; a switch by its model.
        host, _, device = self.node.partition(" ")
        adapter = bool(re.match(r"(?:HCA-\d+|mlx[45]_\d+|ib\w+)$", device))
        who = Identity(host=host) if adapter else Identity()
        for name, value in re.findall(r"\[(\w+) == (\d+)\]", match["pairs"]):
            where = f"{device if adapter else self.node} port {match['port']}"
            self.add(row, "counter", who=who, name=name, value=int(value), device=where, snapshot=1)
        return True


def _nstat(row: Row, match: re.Match[str]) -> Iterable[Fact]:
    if not re.match(r"nstat\b(?!.* -\w*a)", row.command):
        yield row.fact("counter", name=match["name"], value=int(match["value"]), snapshot=1)


def _netstat(row: Row, match: re.Match[str]) -> Iterator[Fact]:
    name = "TcpOutSegs" if match["what"].startswith("sen") else "TcpRetransSegs"
    if row.text.startswith("    ") and not row.text.startswith("     "):
        yield row.fact("counter", name=name, value=int(match["value"]), snapshot=1)


READER = Reader(
    "port_counters",
    lines=(
        Line(
            "counter",
            ("TcpRetransSegs", "TcpOutSegs"),
            r"(?:^|: )(?P<name>Tcp(?:Retrans|Out)Segs)\s+(?P<value>\d+)\s+\d+\.\d+\s*$",
            read=_nstat,
        ),
        # net-tools repeats the line under TcpExt; the fact counts once, for what is equal does not grow
        Line(
            "counter",
            (" segments sen", " segments retransmi"),
            r"^(?P<head>\s+)(?P<value>\d+) segments (?P<what>sen[dt] out|retransmitt?ed)\s*$",
            read=_netstat,
        ),
    ),
    blocks=(Tools(ProcNetDev, "Inter-|   Receive", "|bytes    packets errs"), Tools(QueryErrors, "Errors for ")),
    machine=True,
    title="network interfaces: errors, drops and retransmissions, between two readings",
    versions="iproute2 4 to 6, net-tools 1.60 and 2.10, /proc/net/dev, infiniband-diags 44",
    collect=(
        "ip -s link > $(hostname)-1.txt; sleep 60; ip -s link > $(hostname)-2.txt",
        "nstat -a > $(hostname).nstat",
    ),
)

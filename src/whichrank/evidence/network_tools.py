r"""What a person collects about the network: addresses, MTUs, names, counters, bandwidths.

Reads `ip addr`, `ip -br addr`, `ip link`, `ifconfig`; `getent hosts`, `host`, `nslookup`, `ping`; `ibv_devinfo`,
`ibstat`; `ethtool -S`, `perfquery`, `rdma statistic` and /sys/class/infiniband counters; tables of nccl-tests and of
pairs of hosts, `ib_write_bw`, `iperf3`. The host comes from the heading above (section.py), else from the file.

>>> from whichrank.evidence.sample import facts
>>> counter, = facts(READER, "### node-11: perfquery -x mlx5_0 1\nLinkDownedCounter:...............14")
>>> counter.kind, counter.who.host, dict(counter.values)
('counter', 'node-11', {'name': 'LinkDownedCounter', 'value': 14, 'device': 'mlx5_0', 'snapshot': 1})
>>> name, = facts(READER, "node-b$ getent hosts node-a.lab\n192.168.250.16  node-a.lab node-a")
>>> name.kind, name.who.host, dict(name.values)
('resolves', 'node-b', {'name': 'node-a.lab', 'address': '192.168.250.16'})
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

from whichrank.evidence import nccl_tests
from whichrank.evidence.bandwidth import EXPECTED, Links, Pairs
from whichrank.evidence.port_counters import LinkStats
from whichrank.evidence.scan import Line, Reader, Row, Whole
from whichrank.evidence.section import heading
from whichrank.evidence.tool import Tool, Tools
from whichrank.facts import Fact, Identity

_DEVICES = "mlx|bnxt_re|irdma|qedr|efa|hfi|rocep|ibp|ionic|erdma|mana"
_ADDRESS = r"\d{1,3}(?:\.\d{1,3}){3}|[0-9a-f]{0,4}(?::[0-9a-f]{0,4}){2,7}"


class Addresses(Tool):
    """`ip addr` and `ip link`: the line of an interface, and the addresses under it."""

    _LINK = re.compile(
        r"(?:^|\s)\d+: (?P<interface>[\w.-]+)(?:@\S+)?: <(?P<flags>[A-Z0-9_,-]*)>.*? mtu (?P<mtu>\d+)(?:.*? state (?P<state>\w+))?"
    )
    _OLD = re.compile(r"^(?P<interface>[a-z][\w.-]*): flags=\d+<(?P<flags>[A-Z0-9_,]*)> +mtu (?P<mtu>\d+)")
    _INET = re.compile(rf"(?:^|\s)inet6? (?P<address>{_ADDRESS})(?:/\d+)?\b(?P<rest>.*)")

    def __init__(self) -> None:
        super().__init__()
        self.interface: str | None = None
        self.state: str | None = None
        self.stats = LinkStats()

    def read(self, row: Row) -> bool:
        if match := self._LINK.search(row.raw) or self._OLD.search(row.text):
            self.interface, flags = match["interface"], match["flags"].split(",")
            self.state = match.groupdict().get("state") or ("UP" if "UP" in flags else "DOWN")
            self.add(row, "mtu", interface=self.interface, value=int(match["mtu"]), state=self.state)
            return True
        if match := self._INET.search(row.raw):
            one = re.search(r"(?:^|\s)\d+: (?P<interface>[\w.-]+)\s+inet", row.raw)  # ip -o
            scope = re.search(r" scope \w+(?: \w+)*? (?P<interface>[a-z][\w.:-]*)(?=$| *\\| +valid)", row.raw)
            interface = (one or scope or {"interface": self.interface})["interface"]
            if not isinstance(interface, str):
                return False
            state = self.state if self.interface == interface.split(":")[0] else None
            self.add(row, "ip_address", interface=interface, address=match["address"], state=state)
            return True
        if self.interface is not None and (counted := self.stats.read(row.text)) is not None:
            for name, value in counted:
                self.add(row, "counter", name=name, value=value, interface=self.interface, snapshot=1)
            return True
        return bool(re.match(r"\s+(?:link/\w+|valid_lft|inet6? fe80|ether |RX |TX |loop )", row.text))


class Devices(Tool):
    """`ibv_devinfo` and `ibstat`: a device, its ports, their state and MTU."""

    _DEVICE = re.compile(r"^(?:\s*hca_id:\s*(?P<a>\S+)|\s*CA '(?P<b>[^']+)')")
    _PORT = re.compile(r"^\s+(?:port:\s*(?P<a>\d+)|Port (?P<b>\d+):)\s*$")
    _VALUE = re.compile(r"^\s+(?P<name>state|active_mtu|State|Physical state|Rate):\s*(?P<value>\S+)")
    _OTHER = re.compile(r"^\t+[\w ./]+:\s+\S")

    def __init__(self) -> None:
        super().__init__()
        self.device: str | None = None
        self.port: str | None = None

    def read(self, row: Row) -> bool:
        if match := self._DEVICE.match(row.text):
            self.device, self.port = match["a"] or match["b"], None
            return True
        if self.device is None:
            return False
        if match := self._PORT.match(row.text):
            self.port = match["a"] or match["b"]
            return True
        if match := self._VALUE.match(row.text):
            self._value(row, match["name"], match["value"])
            return True
        return bool(self._OTHER.match(row.text))

    def _value(self, row: Row, name: str, value: str) -> None:
        where = f"{self.device}:{self.port}" if self.port else self.device
        if name == "active_mtu" and value.isdecimal():
            self.add(row, "mtu", interface=self.device, value=int(value), device=where)
        elif name == "Rate" and value.isdecimal():
            self.add(row, "counter", name="rate_gbps", value=int(value), device=where, gauge=True)
        elif name.lower() == "state" and re.fullmatch(r"(?:PORT_)?(?:DOWN|Down|INIT\w*|Init\w*)", value):
            self.add(row, "link", interface=self.device, state="down", device=where, listed=True)


class Counters(Tool):
    """`ethtool -S` and `perfquery`: a name and a number a line. A name that comes again is the next snapshot."""

    _PERFQUERY = re.compile(r"^(?P<name>[A-Z][A-Za-z0-9]{4,40}):\.{2,}(?P<value>\d+)$")
    _ETHTOOL = re.compile(r"^\s+(?P<name>[a-z][\w.\[\]-]{3,60}): (?P<value>\d+)$")
    _SYSFS = re.compile(r"^(?P<name>[a-z][a-z0-9_]{5,50})(?::\s*|\s+)(?P<value>\d+)$")
    _PORT = re.compile(rf"^(?P<host>[A-Za-z][\w.-]*) (?P<device>(?:{_DEVICES})\w*)(?: port |[:/ ])(?P<port>\d+):?$")
    # Of the thousands that a driver counts, those that tell of trouble.
    _TELLING = re.compile(
        r"err|disc|drop|crc|symbol|corrupt|down|pause|cnp|ecn|retr|nak|timeout|out_of|oos|seq|overrun|buf|wait|recover|fail|miss|bad|lost|rnr|storm|Errors|Error|Downed|Discard|Wait|Dropped|Overrun|Integrity"
    )
    _DRIVER = re.compile(r"_phy$|^[rt]x_\w+|_(?:errors|dropped|discards)$")
    _PER_QUEUE = re.compile(r"(?:^|_)(?:[rt]x|ch|queue|q|ring|cpu)_?\d+_|\[\d+\]")

    def __init__(self) -> None:
        super().__init__()
        self.seen: Counter[tuple[str | None, str | None, str]] = Counter()
        self.lid: str | None = None
        self.port: re.Match[str] | None = None

    def read(self, row: Row) -> bool:
        tool = re.match(r"(?:sudo )?(?:\S*/)?(?P<name>ethtool|perfquery)\b", row.command)
        sysfs = "/sys/class/infiniband" in row.command
        if heading(row.text):
            self.lid = self.port = None
            return tool is not None or sysfs
        if match := self._PORT.match(row.text):
            self.port = match
            return True
        if match := re.match(r"# Port (?:extended )?counters: Lid (\d+) port (\d+)", row.text):
            self.lid = f"lid {match[1]} port {match[2]}"
            return True
        if row.text.startswith("NIC statistics:"):
            return True
        if match := self._PERFQUERY.match(row.text):
            if match["name"] not in ("PortSelect", "CounterSelect"):
                self._count(row, match, device=_device(row.command) or (self.port["device"] if self.port else self.lid))
            return True
        if (match := self._ETHTOOL.match(row.text)) and (
            (tool and tool["name"] == "ethtool") or self._DRIVER.search(match["name"])
        ):
            self._count(row, match, interface=_interface(row.command))
            return True
        if sysfs and (match := self._SYSFS.match(row.text)):
            self._count(row, match, device=_device(row.command))
            return True
        return False

    def _count(self, row: Row, match: re.Match[str], device: str | None = None, interface: str | None = None) -> None:
        name = match["name"]
        if self._TELLING.search(name) and not self._PER_QUEUE.search(name):
            who = Identity(host=row.who.host or (self.port["host"] if self.port else None))
            key = (who.host, device or interface, name)
            self.seen[key] += 1
            self.add(
                row,
                "counter",
                who=who,
                name=name,
                value=int(match["value"]),
                device=device,
                interface=interface,
                snapshot=self.seen[key],
            )


class Names(Tool):
    """`getent hosts` and /etc/hosts under a heading that says so; `nslookup`."""

    _GETENT = re.compile(rf"^\s*(?P<address>{_ADDRESS})\s+(?!RAW|DGRAM)(?:STREAM\s+)?(?P<name>[A-Za-z][\w.-]*)")

    def __init__(self) -> None:
        super().__init__()
        self.name: str | None = None

    def read(self, row: Row) -> bool:
        if heading(row.text):
            self.name = None
            return bool(re.match(r"getent (?:a?hosts)|nslookup|cat /etc/hosts", row.command))
        if re.match(r"getent (?:a?hosts)|cat /etc/hosts", row.command) and (match := self._GETENT.match(row.text)):
            self.add(row, "resolves", name=match["name"], address=match["address"])
            return True
        if match := re.match(r"Name:\s+(\S+)$", row.text):
            self.name = match[1]
            return True
        if self.name and (match := re.match(rf"Address:\s+({_ADDRESS})$", row.text)):
            self.add(row, "resolves", name=self.name, address=match[1])
            return True
        return False


def _device(command: str) -> str | None:
    """The InfiniBand device that a command asks: perfquery -C mlx5_0, /sys/class/infiniband/mlx5_0/ports/1."""
    match = re.search(rf"infiniband/(\w+)|(?:^|[\s=])((?:{_DEVICES})\w*)", command)
    return (match[1] or match[2]) if match else None


def _interface(command: str) -> str | None:
    match = re.search(r"(?:ethtool|ifconfig)(?: +-\S+)* +([a-z][\w.-]*)", command)
    return match[1] if match else None


def _pairs(row: Row, match: re.Match[str]) -> Iterable[Fact]:
    """`rdma statistic`: all counters of a port in one line."""
    for name, value in re.findall(r"([a-z]\w+) (\d+)", match["pairs"]):
        if Counters._TELLING.search(name):
            who = Identity(host=row.who.host or match["host"])
            yield row.fact("counter", who=who, name=name, value=int(value), device=match["device"], snapshot=1)


def _brief(row: Row, match: re.Match[str]) -> Iterable[Fact]:
    """`ip -br addr`: one fact for each address, one without for an interface that has none."""
    addresses: list[dict[str, Any]] = [
        {"address": found} for found in re.findall(rf"(?:{_ADDRESS})(?=/\d)", match["addresses"])
    ]
    for values in addresses or [{}]:
        yield row.fact("ip_address", interface=match["interface"], state=match["state"], **values)


LINES = (
    EXPECTED,
    Line(
        "ip_address",
        (" UP ", " DOWN", " UNKNOWN "),
        r"^(?P<interface>lo|[a-z][\w.-]{0,30}\d[\w.-]{0,30})(?:@\S+)?(?: {2,}|(?<=\S{15}) )(?P<state>UP|DOWN|UNKNOWN|LOWERLAYERDOWN|DORMANT)\s*(?P<addresses>(?:[0-9a-f.:]+/\d+\s*(?:metric \d+\s*)?)*)$",
        read=_brief,
    ),
    Line("no_ib_device", "No IB devices found", r"^(?:\[[\w-]+\] (?P<host>[a-z][\w.-]*\d): )?.*No IB devices found"),
    Line("resolves", "has address", rf"^(?P<name>[A-Za-z][\w.-]*) has (?:IPv6 )?address (?P<address>{_ADDRESS})"),
    Line("resolves", "PING", rf"^PING (?P<name>[A-Za-z][\w.-]*) ?\((?P<address>{_ADDRESS})\)"),
    Line(
        "counter",
        "packet loss",
        r"^\d+ packets transmitted, \d+ (?:packets )?received,.* (?P<value>\d+)(?:\.\d+)?% packet loss",
        {"name": "ping_loss_percent", "gauge": True},
    ),
    Line(
        "counter",
        "link ",
        r"(?:^|(?P<host>\b[A-Za-z][\w.-]{0,60}): )\s*link (?P<device>\w+/\d+) (?P<pairs>(?:[a-z]\w+ \d+ ?){3,})",
        read=_pairs,
    ),
    Line(
        "counter",
        "/sys/class/infiniband",
        r"(?:^|(?P<host>\b[A-Za-z][\w.-]{0,60}): )/sys/class/infiniband/(?P<device>\w+)/ports/\d+/(?:hw_)?counters/(?P<name>\w+)(?::|=|:? )(?P<value>\d+)$",
        {"snapshot": 1},
    ),
)
BLOCKS = (
    Tools(Addresses, " mtu ", "inet ", "inet6 "),
    Tools(Devices, "hca_id:", "CA '"),
    Tools(
        Counters,
        "ethtool",
        "perfquery",
        "NIC statistics:",
        "ort counters: Lid",
        "extended counters: Lid",
        ":..",
        "_phy: ",
        "/sys/class/infiniband",
        "    rx_",
        "    tx_",
        " port ",
    ),
    Tools(Names, "getent ", "nslookup", "/etc/hosts", "Name:\t"),
    Tools(
        nccl_tests.NcclTests, "# Rank", "#  Rank", "#   Rank", "# Collective test", "algbw   busbw", "algbw    busbw"
    ),
    Tools(Pairs, "busbw"),
    Tools(Links, "ib_", "iperf", "BW average", "Connecting to host", "bits/sec"),
)
READER = Reader(
    "network_tools",
    lines=LINES,
    blocks=BLOCKS,
    whole=Whole(nccl_tests.sniff, nccl_tests.read),
    title="network: addresses, MTUs, counters, bandwidths",
    versions="iproute2, net-tools, MLNX_OFED and rdma-core tools, nccl-tests 2.0 to 2.19 (also `-J`), perftest, iperf 3",
    collect=(
        "ip -br addr; ip link",
        "ethtool -S IFACE",
        "perfquery -x",
        "ibstat",
        "rdma statistic show",
        "getent hosts $MASTER_ADDR",
        "all_reduce_perf -b 8 -e 1G -f 2 -g 8",
    ),
)

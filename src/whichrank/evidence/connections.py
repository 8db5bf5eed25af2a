r"""TCP connections as a host sees them: `ss -tnp`, `ss -tanpo`, `netstat -tnp`.

Formats: iproute2 3 to 6 (`ss` of 6.1 was run for this; the column `Netid` comes with several families, the timer with
`-o`), net-tools 1.60 and 2.10. Kept are connections that wait for an answer (SYN-SENT), listening ports, and those that
stand. A peer that refuses answers at once: a socket that is seen in SYN-SENT has had no answer at all, as behind a
firewall that drops, on a wrong route, or from a host that is off. Which program it belongs to matters: an agent that
looks for its server is nobody's hang.

>>> from whichrank.evidence.sample import facts
>>> text = '''gx-7$ ss -tnpo
... State    Recv-Q Send-Q Local Address:Port   Peer Address:Port Process
... SYN-SENT 0      1      10.4.0.17:41522      10.4.0.11:29500   users:(("python3",pid=6313,fd=6)) timer:(on,14sec,4)'''
>>> waits, = facts(READER, text)
>>> waits.who.host, waits.who.pid, waits["state"], waits["peer"], waits["peer_port"], waits["retries"]
('gx-7', 6313, 'waits', '10.4.0.11', 29500, 4)
>>> text = "tcp        0      1 10.4.0.17:41522         10.4.0.11:29500         SYN_SENT    6313/python3"
>>> [(fact["process"], fact["peer_port"]) for fact in facts(READER, text)]
[('python3', 29500)]
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from whichrank.evidence.scan import Line, Reader, Row
from whichrank.facts import Fact, Identity

_STATES = {
    "SYN-SENT": "waits",
    "SYN_SENT": "waits",
    "ESTAB": "stands",
    "ESTABLISHED": "stands",
    "LISTEN": "listens",
}
_END = r"(?:\[[0-9A-Fa-f:.]+(?:%\w+)?\]|\*|[0-9A-Fa-f:.]+(?:%[\w.-]+)?):(?:\d{1,5}|\*)"
_SS = (
    r"(?:^|\s)(?:tcp6?\s+)?(?P<state>SYN-SENT|ESTAB|LISTEN)\s+\d+\s+\d+\s+"
    rf"(?P<local>{_END})\s+(?P<peer>{_END})(?P<rest>(?:\s.*)?)$"
)
_NETSTAT = (
    rf"(?:^|\s)tcp6?\s+\d+\s+\d+\s+(?P<local>{_END})\s+(?P<peer>{_END})\s+"
    r"(?P<state>SYN_SENT|ESTABLISHED|LISTEN)(?P<rest>(?:\s.*)?)$"
)
_USERS = re.compile(r'users:\(\("(?P<name>[^"]{1,40})",(?:pid=)?(?P<pid>\d+)')
_PROGRAM = re.compile(r"\s(?P<pid>\d+)/(?P<name>[^\s/]{1,40})")
_TIMER = re.compile(r"timer:\(on,[^,()]+,(?P<retries>\d+)\)|\bon \(\d+\.\d+/(?P<old>\d+)/\d+\)")


def _end(text: str) -> tuple[str, str]:
    """Address and port: an address of IPv4 within IPv6 as what it is, an interface taken off."""
    address, _, port = text.rpartition(":")
    address = address.strip("[]").partition("%")[0].lower()
    return address.removeprefix("::ffff:") if "." in address else address, port


def _read(row: Row, match: re.Match[str]) -> Iterator[Fact]:
    state, rest = _STATES[match["state"]], match["rest"]
    (local, local_port), (peer, peer_port) = _end(match["local"]), _end(match["peer"])
    if peer.startswith("127.") or peer == "::1":
        return
    program, timer = _USERS.search(rest) or _PROGRAM.search(rest), _TIMER.search(rest)
    values: dict[str, Any] = {
        "state": state,
        "local": local,
        "local_port": int(local_port) if local_port.isdecimal() else None,
        "peer": None if state == "listens" else peer,
        "peer_port": int(peer_port) if peer_port.isdecimal() else None,
        "process": program["name"] if program else None,
        "retries": int(timer["retries"] or timer["old"]) if timer and state == "waits" else None,
    }
    who = Identity(pid=int(program["pid"])) if program else Identity()
    yield row.fact("connection", who=who, **{name: value for name, value in values.items() if value is not None})


READER = Reader(
    "connections",
    lines=(
        Line("connection", ("SYN-SENT ", "ESTAB ", "LISTEN "), _SS, read=_read),
        Line("connection", ("SYN_SENT", "ESTABLISHED", "LISTEN "), _NETSTAT, read=_read),
    ),
    machine=True,
    title="TCP connections: who waits for an answer, who is connected, who listens",
    versions="iproute2 3 to 6 (`ss`), net-tools 1.60 and 2.10 (`netstat`)",
    collect=(
        "ss -tanpo > $(hostname).ss",
        "netstat -tanp > $(hostname).netstat",
    ),
)

"""Network interfaces of this node, and which of them NCCL and gloo would choose.

NCCL: src/misc/socket.cc (2.18 to 2.30): what NCCL_SOCKET_IFNAME lists, prefixes unless they begin with `=`, all but
those with `^`; else names that begin with ib, else any but docker, lo and virbr, else docker, else lo. gloo: the one
that GLOO_SOCKET_IFNAME names exactly, else the address to which the node's own name resolves (PyTorch
ProcessGroupGloo.cpp, createDefaultDevice; it falls back to loopback with a mere warning).
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

SIOCGIFADDR = 0x8915
TIERS = ("ib", "^docker,lo,virbr", "docker", "lo", "virbr")


@dataclass(frozen=True, slots=True)
class Interface:
    """speed: Mb/s, None where the driver does not say. addresses: IPv4 first."""

    name: str
    addresses: tuple[str, ...]
    mtu: int | None
    up: bool
    speed: int | None


def interfaces() -> list[Interface]:
    """In the kernel's order, those without an address included."""
    six = _addresses6()
    found = []
    for _, name in socket.if_nameindex():
        four = _address4(name)
        speed = _read(name, "speed")
        found.append(
            Interface(
                name,
                (*([four] if four else []), *six.get(name, [])),
                int(mtu) if (mtu := _read(name, "mtu")).isdecimal() else None,
                _read(name, "operstate") in ("up", "unknown"),
                int(speed) if speed.isdecimal() and int(speed) < 10**7 else None,
            )
        )
    return found


def _read(name: str, what: str) -> str:
    try:
        return Path("/sys/class/net", name, what).read_text().strip()
    except (OSError, ValueError):
        return ""


def _address4(name: str) -> str | None:
    import fcntl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        try:
            answer = fcntl.ioctl(asking.fileno(), SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
        except OSError:
            return None
    return socket.inet_ntoa(answer[20:24])


def _addresses6() -> dict[str, list[str]]:
    """proc(5), /proc/net/if_inet6. Addresses of the link alone are left out: they need a scope."""
    found: dict[str, list[str]] = {}
    with suppress(OSError):
        for line in Path("/proc/net/if_inet6").read_text().splitlines():
            digits, _, _, scope, _, name = line.split()
            if scope != "20":
                found.setdefault(name, []).append(socket.inet_ntop(socket.AF_INET6, bytes.fromhex(digits)))
    return found


def matches(name: str, pattern: str) -> bool:
    """As NCCL reads a list of interfaces.

    >>> [matches(name, "=eth0,ens") for name in ("eth0", "eth01", "ens5f0")], matches("docker0", "^docker,lo")
    ([True, False, False], False)
    """
    without = pattern.startswith("^")
    words = pattern[1:] if without else pattern
    exact = words.startswith("=")
    words = words[1:] if exact else words
    hit = any(name == word if exact else name.startswith(word) for word in words.split(",") if word)
    return hit != without


def nccl(there: Sequence[Interface], env: Mapping[str, str]) -> Interface | None:
    """The first that NCCL would take; None: it would stop with "no socket interface found"."""
    usable = [one for one in there if one.addresses and one.up]
    given = env.get("NCCL_SOCKET_IFNAME", "")
    for pattern in (given,) if len(given) > 1 else TIERS:
        for one in usable:
            if matches(one.name, pattern):
                return one
    return None


def gloo(there: Sequence[Interface], env: Mapping[str, str], own_addresses: Sequence[str]) -> Interface | None:
    """own_addresses: to which the node's own name resolves here."""
    usable = [one for one in there if one.addresses]
    if given := env.get("GLOO_SOCKET_IFNAME", ""):
        return next((one for word in given.split(",") for one in usable if one.name == word), None)
    for address in own_addresses:
        for one in usable:
            if address in one.addresses or (one.name == "lo" and address.startswith("127.")):
                return Interface(one.name, (address, *one.addresses), one.mtu, one.up, one.speed)
    return next((one for one in usable if one.name == "lo"), None)


def towards(host: str, port: int) -> str | None:
    """The own address from which the kernel would send there. Nothing is sent."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as asking:
            asking.connect(address)
            return str(asking.getsockname()[0])
    except (OSError, UnicodeError):
        return None


def plain(one: Interface | None) -> dict[str, Any] | None:
    return None if one is None else {**asdict(one), "addresses": list(one.addresses)}

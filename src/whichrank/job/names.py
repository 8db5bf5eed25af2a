"""Host names: the same machine under several spellings is one.

>>> canon("cn-0417.ib"), canon("10.12.0.51"), canon("NODE-3.example.org")
('cn-0417', '10.12.0.51', 'node-3')
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from whichrank.facts import slashed

_IP = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}|[0-9a-f]*:[0-9a-f:]+")
_DATE = r"(?:20\d\d-?)?(?:0[1-9]|1[0-2])-?[0-3]\d(?!\d)"  # behind a name: gn-05-0911, gn-05-2026-09-11
_NOT_A_HOST = {"localhost", "none", "unknown", "null", "kernel", "log", "train", "logs"}
_FILE_WORDS = re.compile(
    r"^(?:dmesg|kern|kernel|journal|journalctl|syslog|messages|log|logs|txt|out|err|stdout|stderr|gz|xz|zst|csv|json|pyspy|py-spy|native|gdb|smi|"
    r"nvidia-smi|slurm|train|trainer|node|net|attempt\d*|rank\d*|ps|stack|stacks|counters?)$",
    re.I,
)


def canon(host: str | None) -> str | None:
    """A host's short name, lower case; an address as it is; None for what is no host."""
    if not host:
        return None
    host = host.strip().strip("[]").lower()
    if _IP.fullmatch(host):
        return host
    host = host.split(".")[0]
    return None if not host or host in _NOT_A_HOST else host


def in_path(path: str, hosts: Iterable[str]) -> str | None:
    """The known host that a path names: the file before its folders, the longest first; none where it names two alike.

    >>> in_path("logs/gn-06/gn-05.dmesg", {"gn-05", "gn-06"}), in_path("pair_gn-05_gn-06.txt", {"gn-05", "gn-06"})
    ('gn-05', None)
    >>> in_path("dmesg/gn-05-0911.txt", {"gn-05"}), in_path("dmesg/gn-05-2.txt", {"gn-05"})
    ('gn-05', None)
    """
    low = path.lower().replace("\\", "/")
    file = low.rpartition("/")[2]
    for part in (file, low):
        found = [
            host
            for host in hosts
            if len(host) > 1
            and host in part
            and re.search(rf"(?<![a-z0-9]){re.escape(host)}(?![a-z0-9]|-(?!{_DATE})\d)", part)
        ]
        if found:
            longest = {host for host in found if len(host) == max(map(len, found))}
            return longest.pop() if len(longest) == 1 else None
    return None


def guess_from_path(path: str) -> str | None:
    """A host name from a file of host evidence (cn-417.dmesg.txt), where nothing else names it."""
    name = slashed(path).rsplit("/", 1)[-1]
    parts = [part for part in re.split(r"[._]", name) if part and not _FILE_WORDS.match(part)]
    parts = [
        re.sub(r"^(?:dmesg|kern|journal|syslog)-|-(?:dmesg|kern|journal|syslog)$", "", part, flags=re.I)
        for part in parts
    ]
    parts = [part for part in parts if re.search(r"[a-z]", part, re.I) and re.search(r"\d", part)]
    parts = [part for part in parts if not re.search(r"(?:rank|pid|worker|py-?spy)[_-]?\d", part, re.I)]
    return canon(parts[0]) if parts else None


def beside_hosts(paths: Iterable[str], known: Collection[str]) -> set[str]:
    """Names of files and folders that stand where others are called like a known host, and have the same shape.

    >>> beside_hosts(["run1/gn-05/out.log", "run1/gn-06/out.log", "run1/notes-1/a.txt"], {"gn-05"})
    {'gn-06'}
    """
    names = {(at, part) for path in paths for at, part in enumerate(slashed(path).split("/"))}
    told = {(at, name) for at, part in names if (name := canon(part)) and not _LABEL.match(name)}
    shapes = {(at, _shape(name)) for at, name in told if name in known}
    return {name for at, name in told if (at, _shape(name)) in shapes and "#" in _shape(name)} - set(known)


def _shape(name: str) -> str:
    return re.sub(r"\d+", "#", name)


def is_address(host: str) -> bool:
    return bool(_IP.fullmatch(host))


_LABEL = re.compile(
    r"^(?:rank|attempt|step|epoch|run|job|slurm|part|shard|node|worker|trainer|proc|gpu|task|local|try|version|v|r|seed|exp|log|out|err|stdout|stderr|fold|stage|restart)[_-]?\d*$|^\d+$",
    re.I,
)


def is_label(text: str) -> bool:
    """A word with a number that counts something: rank3, attempt_1, part2."""
    return bool(_LABEL.match(text))


def mentioned(path: str, text: str) -> str | None:
    """A host name that only a file's name carries (nb-07_attempt2.log), believed if a neighbour speaks of it.

    >>> mentioned("logs/nb-07_attempt2.log", "job requeued: nb-05 -> nb-07")
    'nb-07'
    >>> mentioned("logs/rank3.log", "rank3 failed")
    """
    name = slashed(path).rsplit("/", 1)[-1]
    for part in re.split(r"[._]", name):
        if (
            re.search(r"[A-Za-z]", part)
            and re.search(r"\d", part)
            and not _LABEL.match(part)
            and re.search(rf"(?<![\w-]){re.escape(part)}(?![\w-])", text)
        ):
            return canon(part)
    return None

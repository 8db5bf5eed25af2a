r"""Headings that people and scripts put above a tool's output: on which host it ran, and the command.

>>> heading("### node-11: perfquery -x mlx5_0 1")
('node-11', 'perfquery -x mlx5_0 1')
>>> heading("node-b$ ip -br addr"), heading("user@box-417 ~ % nvidia-smi"), heading("[root@cn7 ~]# dmesg -T")
(('node-b', 'ip -br addr'), ('box-417', 'nvidia-smi'), ('cn7', 'dmesg -T'))
>>> heading("node-22 $ uptime"), heading("tower:~$ nvidia-smi"), heading("box-a ~ # ss -ltnp")
(('node-22', 'uptime'), ('tower', 'nvidia-smi'), ('box-a', 'ss -ltnp'))
>>> heading("$ ssh ops@node-11 ibstat"), heading("$ df -h /dev/shm"), heading("== node-11 ==")
(('node-11', 'ibstat'), (None, 'df -h /dev/shm'), ('node-11', None))
>>> heading("Every 30.0s: ethtool -S ens4f0            node-11: Wed May 20 21:09:26 2026")
('node-11', 'ethtool -S ens4f0')
>>> heading("user@login2:~$ srun -N2 train.sh"), heading("### step-3: loss 2.3"), heading("=== epoch3 ===")
((None, 'srun -N2 train.sh'), None, None)
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_HOST = r"[A-Za-z0-9](?:[\w.-]{0,60}[A-Za-z0-9])?"
_MARKED = re.compile(rf"#{{2,6}} +(?P<hosts>{_HOST}(?: *, *{_HOST})*) *(?::(?: +(?P<command>\S.*))?)?$")
_RULED = re.compile(
    rf"(?P<rule>[=*]{{2,}}|-{{2,}}(?=.*--$)) *\[?(?:host(?:name)?[:=]? ?|node[:=] ?)?(?P<host>{_HOST})\]?:? *(?:[=*-]{{2,}})?$",
    re.I,
)
_ANSIBLE = re.compile(rf"(?P<host>{_HOST}) \| (?:CHANGED|SUCCESS|FAILED!?|UNREACHABLE!) \| rc=\d+ >>$")
_PROMPTS = (
    re.compile(rf"(?:\([\w.-]+\) )?[\w.-]+@(?P<host>{_HOST})(?::\S*| \S+)? ?[$%#>] (?P<command>\S.*)$"),
    re.compile(rf"\[[\w.-]+@(?P<host>{_HOST}) [^\]]*\][$#] (?P<command>\S.*)$"),
    re.compile(rf"(?P<host>{_HOST})(?::(?P<dir>[~/]\S*)| (?P<place>[~/]\S*))[ ]?[$%#] (?P<command>[\w./].*)$"),
    re.compile(rf"(?P<host>{_HOST}) ?[$%] (?P<command>[\w./].*)$"),
    re.compile(r"\$ (?P<command>\S.*)$"),
)
_SSH = re.compile(
    rf"(?:sudo )?ssh (?:-\w+(?: [\w=./]+(?= ))? )*?(?:[\w.-]+@)?(?P<host>{_HOST})(?: +(?P<command>\S.*))?$"
)
# watch(1): the command, and on the right the host and the time
_WATCH = re.compile(
    rf"Every \d+(?:[.,]\d+)?s: (?P<command>\S.*?)(?: {{2,}}(?P<host>{_HOST}): \w{{3}} \w{{3}} +\d[\d: ]+\d{{4}})?$"
)
_FLAG = r"(?:(?:-[it]{1,2}|--stdin|--tty)|(?:-[nc]|--namespace|--container|--context)[= ]\S+)"
_EXEC = re.compile(
    rf"(?:kubectl|oc)(?: +{_FLAG})* +exec +(?:{_FLAG} +)*(?:pods?/)?(?P<host>{_HOST})(?: +{_FLAG})* +(?:-- +)?(?P<command>\S.*)$"
)
_ON = re.compile(rf"srun\b.*?(?:-w|--nodelist)[ =](?P<host>{_HOST})(?= ) (?P<command>.*)$")
# Their output is not this host's: a launcher, a remote shell, a file that came from anywhere.
_ELSEWHERE = re.compile(
    r"(?:sudo )?(?:srun|sbatch|salloc|mpirun|mpiexec|pdsh|clush|ansible\S*|kubectl|helm|docker|ray|s(?:acct|control|queue|info)|tar|scp|rsync|(?:cat|less|head|tail|z?grep|zcat|ls)(?!.* /(?:etc|proc|sys|dev|run|var)\b))\b"
)
_NO_HOST = re.compile(
    r"(?:step|epoch|iter\w*|rank|phase|stage|gpu|attempt|run|round|batch|layer|trial|fold|part|test|exp\w*|section|task|job|log|note|fig|table|day|v|q|seed|version|loss|eval|train\w*)[-_.]?\d*",
    re.I,
)
_TOOLS = re.compile(
    r"(?:sudo )?(?:ip|if\w+|ib\w+|ethtool|perfquery|rdma|dmesg|journalctl|nvidia-smi|rocm-smi|amd-smi|df|mount|iostat|nfs\w+|ps|top|uptime|getent|host|nslookup|dig|ping|cat|grep|py-spy|gdb|free|ls|date|hostname)\b"
)


def heading(text: str) -> tuple[str | None, str | None] | None:
    """(host, command) of a heading line, either of them None where it is not said; None if `text` is no heading.

    A heading whose command runs elsewhere (``srun``, ``kubectl``), or that names several hosts, has no host.
    """
    text = text.strip()
    if len(text) > 400 or not text:
        return None
    if match := _MARKED.match(text):
        return _marked(match["hosts"], match["command"])
    if match := _WATCH.match(text):
        return (match["host"], match["command"].strip())
    if (match := _RULED.match(text)) or (match := _ANSIBLE.match(text)):
        return (match["host"], None) if is_host(match["host"]) else None
    for pattern in _PROMPTS:
        if match := pattern.match(text):
            parts = match.groupdict()
            host = parts.get("host")
            shell = "@" in text[: match.start("command")] or parts.get("dir") or parts.get("place")
            if host is not None and not shell and not is_host(host) and not _TOOLS.match(match["command"]):
                continue
            return _prompted(host, match["command"].strip())
    return None


def is_host(name: str) -> bool:
    """A digit or a hyphen, and not the word for something that is counted."""
    return bool(re.search(r"[a-z]", name, re.I) and re.search(r"\d|[a-z]-[a-z]", name)) and not _NO_HOST.fullmatch(name)


def _marked(hosts: str, command: str | None) -> tuple[str | None, str | None] | None:
    names = [name.strip() for name in hosts.split(",")]
    plain = all(re.fullmatch(r"[a-z0-9.-]+", name) for name in names)
    if not all(is_host(name) and (plain or re.search(r"\d", name)) for name in names) and not (
        plain and command and _TOOLS.match(command)
    ):
        return None
    return (names[0] if len(names) == 1 else None, command)


def _prompted(host: str | None, command: str) -> tuple[str | None, str | None]:
    for pattern in (_SSH, _EXEC, _ON):
        if match := pattern.match(command):
            inner = match["command"]
            return (match["host"], inner.strip().strip("\"'") if inner else None)
    return (None if _ELSEWHERE.match(command) else host, command)


def may_head(text: str) -> bool:
    """A cheap look, true for every heading: most lines are none."""
    return (
        text[:2] in ("##", "==", "**", ">>", "--", "$ ")
        or text.startswith("Every ")
        or "$ " in text[:120]
        or "% " in text[:120]
        or (
            "# " in text[:120]
            and (
                "@" in text[:120]
                or " ~" in text[:120]
                or " /" in text[:120]
                or ":~" in text[:120]
                or ":/" in text[:120]
            )
        )
        or text.endswith(">>")
    )


@dataclass(slots=True)
class Section:
    """Under which heading the lines of a file stand."""

    base: str | None = None
    host: str | None = None
    command: str = ""

    def see(self, text: str) -> bool:
        """Is this line a heading? Then it is what the following lines stand under."""
        if not may_head(text) or (found := heading(text)) is None:
            return False
        host, command = found
        self.command = command or ""
        prompt = text.lstrip().startswith(("$ ", "Every ")) and not (host and text.startswith("Every "))
        if not prompt:
            self.base = host
        # `$ ssh host tool` is for one command; a plain `$ tool` runs where the heading above says.
        self.host = host if host or not prompt else (None if _ELSEWHERE.match(self.command) else self.base)
        return True

r"""What collectors and runners put before each line: a time, a stream, a pod, a container, a host.

CRI logs (containerd, CRI-O; Kubernetes' kubelet 1.20 to 1.34), `kubectl logs --timestamps` and `--prefix`, `docker
(compose) logs` with and without `-t`, stern 1.2 to 1.33, `aws logs tail` (AWS CLI 2), CloudWatch's export to S3,
`logcli` (default output), Grafana's "download logs" as text (10 to 12), GitHub Actions and Azure Pipelines, GitLab CI
(sections; stamps of runner 17, which 18.7 always writes), syslog (RFC 3164, RFC 5424, rsyslog's and journalctl's ISO stamps).

What the kernel and other daemons wrote to syslog stays as it is: who spoke is part of the evidence.

>>> def opened(*lines):
...     return recognise(lines).open(lines)
>>> out = opened("2026-07-30T09:30:15.4Z stderr P [rank3] Trace", "2026-07-30T09:30:15.4Z stderr F back")
>>> out.lines, out.times
(['[rank3] Traceback'], [1785403815400000000])
>>> out = opened("[pod/asr-0/trainer] 2026-07-30T09:30:15.408883675Z step 7")
>>> out.lines, out.whos[0].pod
(['2026-07-30T09:30:15.408883675Z step 7'], 'asr-0')
>>> opened("2026-07-30T09:30:15.4000000Z ##[error]Process completed with exit code 1.").lines
['Process completed with exit code 1.']
>>> out = opened('<165>1 2026-07-30T09:30:15.4Z gn-05 train 812 - [r@32473 rank="3"] step 7')
>>> out.lines, out.whos[0].host, out.whos[0].rank
(['step 7'], 'gn-05', 3)
>>> recognise(["2026-07-30 09:30:15 step 7"] * 9), recognise(["Jul 30 09:30:15 gn-05 kernel: oom-kill"] * 9)
(None, None)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from whichrank.evidence import stamps
from whichrank.evidence.envelope import labels
from whichrank.evidence.envelope.clock import wall
from whichrank.evidence.envelope.part import LONGEST, Opened
from whichrank.evidence.envelope.plans import DAEMON
from whichrank.evidence.frame import ANSI
from whichrank.facts import NOBODY, Identity

_ISO = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:?\d\d)"
_NAME = r"[a-z0-9](?:[a-z0-9.-]{0,250}[a-z0-9])?"  # of a Kubernetes object
_LEVEL = r"(?:TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|CRITICAL|FATAL)\b"
# What begins a line: a collector's stamp that stands before it was no logger's.
_BEGINS = re.compile(
    r"(?:\x1b\[[\d;]*m)*(?:\[(?:rank|default) ?\d+\]|Traceback \(most|[EWIF]\d{4} \d\d:\d\d:|\[?\d{4}[-/]\d\d[-/]\d\d[T _]\d\d:|\[?\d\d:\d\d:\d\d|\[\d+,\d+\]<std"
    r"|\[[A-Z]+\|20\d\d-|[\w.-]+:\d+:\d+ \[\d+\] NCCL|\(\w+ pid=\d+|  File \"|\{\")"
)
_LEVELS = re.compile(rf"(?:\x1b\[[\d;]*m)*{_LEVEL}")
Finish = Callable[["re.Match[str]"], Identity]


def _named(match: re.Match[str]) -> Identity:
    """Host, pod and stream by the names of the pattern's groups."""
    return _of(tuple([(name, match[name]) for name in match.re.groupindex if name in ("host", "pod", "where")]))


@lru_cache(maxsize=4096)
def _of(named: tuple[tuple[str, str | None], ...]) -> Identity:
    return labels.identity(tuple(("stream" if name == "where" else name, value) for name, value in named))


_QUOTED = re.compile(r'(?P<key>[\w.@-]+)="(?P<value>(?:[^"\\\]]|\\.)*)"')


def _with_pairs(match: re.Match[str]) -> Identity:
    """Structured data of RFC 5424, Loki's labels: key="value" pairs."""
    return _by_pairs(match["pairs"] or "", match["host"] if "host" in match.re.groupindex else None)


@lru_cache(maxsize=4096)
def _by_pairs(text: str, host: str | None) -> Identity:
    pairs = {match["key"]: match["value"] for match in _QUOTED.finditer(text)}
    parts = tuple((part, pairs[path[0]]) for part, path in labels.telling(pairs))
    return labels.identity((*parts, ("host", host)))


@dataclass(frozen=True, slots=True)
class Prefix:
    """A wrapping that is a pattern at the start of the line; the text is what follows.

    Groups: `time`, `host`, `pod`, `where` (a log stream), `stream`, `tag` (CRI's P: the next line of the stream goes
    on with it), `adds` (GitLab's +: it goes on with the last one).
    `share`: of the lines that must hold it. `more` looks at the lines that hold it, and may refuse.
    """

    name: str
    pattern: re.Pattern[str]
    share: float = 0.8
    who: Finish | None = None
    more: Callable[[Sequence[re.Match[str]]], bool] | None = None
    marks: re.Pattern[str] | None = None  # taken from the start of the text
    exported: bool = False

    def open(self, lines: Sequence[str]) -> Opened:
        texts: list[str] = []
        origins: list[int] = []
        times: list[int | None] = []
        whos: list[Identity] = []
        begun: dict[str, int] = {}  # stream -> where in `texts` its unfinished line stands
        last: dict[str, int] = {}
        match_of, who_of, marks, groups = self.pattern.match, self.who, self.marks, self.pattern.groupindex
        timed, partial, adding = "time" in groups, "tag" in groups, "adds" in groups
        for origin, line in enumerate(lines):
            if line[:1] == "\x1b" or "\x1b" in line[:12]:
                line = ANSI.sub("", line)
            match = match_of(line)
            text, at, who = line, None, NOBODY
            if match is not None:
                text = line[match.end() :]
                if marks is not None:
                    text = marks.sub("", text)
                place = None
                if partial and (begun or match["tag"] == "P"):
                    place = begun.pop(match["stream"], None)
                    if match["tag"] == "P":
                        begun[match["stream"]] = len(texts) if place is None else place
                elif adding:
                    place = last.get(match["stream"]) if match["adds"] else None
                    last[match["stream"]] = len(texts) if place is None else place
                if place is not None:
                    texts[place] = (texts[place] + text)[:LONGEST]
                    continue
                at = _time(match["time"]) if timed else None
                who = who_of(match) if who_of is not None else NOBODY
            texts.append(text)
            origins.append(origin)
            times.append(at)
            whos.append(who)
        return Opened(texts, origins, times, whos, bool(begun))

    def fits(self, lines: Sequence[str]) -> bool:
        found = [match for line in lines if (match := self.pattern.match(line)) is not None]
        return len(found) >= self.share * len(lines) and (self.more is None or self.more(found))


def _time(text: str | None) -> int | None:
    if not text:
        return None
    if text[0].isdecimal():
        return wall(text)
    found = stamps.find(text)
    return found[0] if found and found[1] == "wall" else None


_FINE = re.compile(r"\.\d{7}")


def _fine(found: Sequence[re.Match[str]]) -> bool:
    """To a tenth of a microsecond or finer: no program's logger writes that."""
    return sum(bool(_FINE.search(match["time"])) for match in found) > 0.4 * len(found)


def _before_a_line(found: Sequence[re.Match[str]]) -> bool:
    """What follows is a line with a beginning of its own, often enough."""
    return sum(bool(_BEGINS.match(match.string, match.end())) for match in found) >= max(1, 0.08 * len(found))


def _with_levels(found: Sequence[re.Match[str]]) -> bool:
    """What follows often begins with a level: "INFO: ready"."""
    return sum(bool(_LEVELS.match(match.string, match.end())) for match in found) >= max(1, 0.08 * len(found))


def _few(found: Sequence[re.Match[str]]) -> bool:
    """A few names that come again and again."""
    names = {match.group("pod" if "pod" in match.re.groupindex else "where") for match in found}
    return len(names) <= max(1, len(found) // 2)


_TAGGED = re.compile(rf"(?!{_LEVEL})[\w./@-]+(?:\[\d+\])?: ")


def _streams(found: Sequence[re.Match[str]]) -> bool:
    """A stream's name, not the host before the program of a syslog."""
    if all("/" in match["where"] for match in found):  # no host's name holds a slash
        return _few(found)
    tagged = sum(bool(_TAGGED.match(match.string, match.end())) for match in found)
    return tagged < 0.3 * len(found) and _few(found)


def _one_column(found: Sequence[re.Match[str]]) -> bool:
    """Names are padded to the longest, which may come late."""
    return len({match.end("bar") for match in found}) <= max(1, len(found) // 10) and _few(found)


_OF_TRAINING = re.compile(r"\brank\W?\d|\bstep\b|\bepoch\b|\bloss\b|NCCL|torch|ProcessGroup", re.I)


def _training(found: Sequence[re.Match[str]]) -> bool:
    """A training's output: what any other program says to syslog is known by the program's name."""
    telling = sum(bool(_OF_TRAINING.search(match.string, match.end())) for match in found)
    return telling >= 0.2 * len(found) or _with_levels(found) or _before_a_line(found)


def _stern(found: Sequence[re.Match[str]]) -> bool:
    pairs = {(match["pod"], match["container"]) for match in found}
    return len(pairs) <= max(1, len(found) // 3) and (_with_levels(found) or _before_a_line(found))


_CI = re.compile(r"##\[(?:group|endgroup|error|warning|debug|command|section|notice)\]")
_GITLAB = re.compile(r"(?:\x1b\[0?K|\x1b\[[\d;]*m|section_(?:start|end):\d+:[^\r\n]*(?:\r|$))+")
# Tried in this order; the first that fits is peeled.
PREFIXES = (
    Prefix(
        "cri",
        re.compile(rf"(?P<time>{_ISO}) (?P<stream>stdout|stderr) (?P<tag>[PF])(?::[A-Z])* "),
        share=0.6,
    ),
    Prefix(
        "rfc5424",
        re.compile(
            rf"(?:<\d{{1,3}}>)?1 (?:-|(?P<time>{_ISO})) (?:-|(?P<host>\S{{1,255}})) (?!(?:{DAEMON.pattern}) )\S{{1,48}} \S{{1,128}} \S{{1,32}}"
            r" (?:-|(?P<pairs>\[[^\]\s]+(?: [^\s=]+=\"(?:[^\"\\\]]|\\.)*\")*\](?:\[[^\n]*?\](?= |$))*))(?: \ufeff?|$)"
        ),
        share=0.3,
        who=_with_pairs,
    ),
    Prefix(
        "gitlab",
        re.compile(r"(?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z) (?P<stream>[0-9a-f]{2}[OE])(?: |(?P<adds>\+))"),
        marks=_GITLAB,
    ),
    Prefix(
        "actions",
        re.compile(
            r"(?:\ufeff|[^\t\n]{1,200}\t[^\t\n]{1,200}\t\ufeff?)?(?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{7}Z) ?"
        ),
        marks=_CI,
    ),
    Prefix("timestamps", re.compile(rf"(?P<time>{_ISO})(?: |$)"), share=0.9, more=_fine),
    Prefix(
        "kubectl",
        re.compile(rf"\[pod/(?P<pod>{_NAME})/[^\]\s]+\] ?"),
        share=0.6,
        who=_named,
    ),
    Prefix(
        "compose",
        re.compile(rf"(?!{_LEVEL})(?P<pod>[A-Za-z0-9][\w.-]{{0,80}}) {{1,40}}(?P<bar>\|)(?: |$)"),
        share=0.9,
        who=_named,
        more=_one_column,
    ),
    Prefix(
        "syslog",
        re.compile(
            rf"(?:<\d{{1,3}}>)?(?P<time>[A-Z][a-z]{{2}} [ \d]\d \d\d:\d\d:\d\d(?:\.\d{{1,6}})?|{_ISO}) (?!{_LEVEL})(?P<host>[A-Za-z\d][\w.:-]*) "
            rf"(?!(?:{DAEMON.pattern})[\[:]|{_LEVEL})[\w./@-]{{1,64}}(?:\[\d+\])?: ?"
        ),
        share=0.4,
        who=_named,
        more=_training,
    ),
    Prefix(
        "aws",
        re.compile(
            rf"(?P<time>\d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{{6}})?\+00:00) (?!{_LEVEL})(?P<where>(?=\S*[\d/_-])[\w./\[\]$#:@-]+)(?: |$)"
        ),
        share=0.85,
        who=_named,
        more=_streams,
        exported=True,
    ),
    Prefix(
        "logcli",
        re.compile(rf"(?P<time>{_ISO}) (?P<pairs>\{{(?:[\w.]+=\"(?:[^\"\\]|\\.)*\"(?:, )?)*\}}) *"),
        share=0.6,
        who=_with_pairs,
        exported=True,
    ),
    Prefix(
        "grafana",
        re.compile(rf"(?P<time>1\d{{12}})\t{_ISO}\t"),
        share=0.3,
        exported=True,
    ),
    Prefix(
        "stern",
        re.compile(rf"(?:{_NAME} )?(?P<pod>(?=[a-z0-9.]*-){_NAME}) (?P<container>{_NAME}) "),
        share=0.85,
        who=_named,
        more=_stern,
    ),
    Prefix(
        "stamped",
        re.compile(r"(?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{3}|\.\d{6})?(?:Z|\+00:00)?)(?: |$)"),
        share=0.95,
        more=_before_a_line,
        exported=True,
    ),
)


@dataclass(frozen=True, slots=True)
class Sections:
    """GitLab's marks of sections: "section_start:1785403815:step_script", carriage return, "erase line"."""

    exported: bool = False
    _MARK = re.compile(r"section_(?:start|end):(\d{9,11}):[^\r\n]*\r")

    def open(self, lines: Sequence[str]) -> Opened:
        texts: list[str] = []
        times: list[int | None] = []
        for line in lines:
            match = self._MARK.search(line) if "section_" in line else None
            texts.append(_GITLAB.sub("", line) if match else line)
            times.append(wall(int(match[1])) if match else None)
        return Opened(texts, list(range(len(texts))), times, [NOBODY] * len(texts))


def recognise(lines: Sequence[str]) -> Prefix | Sections | None:
    """The layer that most of these lines carry."""
    marked = any("section_start:" in line and Sections._MARK.search(line) for line in lines)
    if marked and not lines[0][:1].isdecimal():
        return Sections()
    clean = [ANSI.sub("", line) if "\x1b" in line[:12] else line for line in lines]
    return next((prefix for prefix in PREFIXES if prefix.fits(clean)), None)

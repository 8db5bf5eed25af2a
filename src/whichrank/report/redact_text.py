"""One text without private things: secrets, addresses, identifiers, paths, names. In this order: see `Redactor.text`."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable
from functools import partial

from whichrank.evidence.slurm_tables import hosts_of
from whichrank.job.common_words import PACKAGES
from whichrank.job.private import CONTEXTS, Name, name_of
from whichrank.report.redact_names import ALIAS, Aliases, Known, has_alias, key_of, without_aliases
from whichrank.report.redact_paths import Paths

_VALUE = r"[\"']?\s*[=:]\s*[\"']?"
# (pattern, what a match must also be): the group `secret`, else all of it, is taken out
SECRETS: tuple[re.Pattern[str], ...] = tuple(
    re.compile(pattern)
    for pattern in (
        r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*",
        rf"(?i)(?<![a-z])(?:pass(?:word|wd|phrase)|pwd|secret){_VALUE}(?P<secret>[^\s\"',;&)]+)",
        rf"(?i)(?:api|access|private|secret|encryption|account|auth|storage)[_-]?key(?:[_-]?id)?{_VALUE}(?P<secret>[^\s\"',;&)]{{4,}})",
        rf"(?i)(?:token|credentials?|authorization|signature|x-amz-\w+|\bsig){_VALUE}(?:bearer |basic )?(?P<secret>(?=[^\s\"']*[a-z])[^\s\"',;&)]{{8,}})",
        r"(?i)\b(?:bearer|basic) (?P<secret>(?=\S*\d)[\w+/=.~-]{8,})",
        r"(?i)\bwandb[: ]+login (?:--\S+ )*(?P<secret>[^\s-]\S{7,})",
        r"\b(?:AKIA|ASIA|AROA|AIDA)[0-9A-Z]{12,}",
        r"\bhf_[A-Za-z0-9]{16,}",
        r"\b(?:gh[pousr]_|github_pat_|glpat-|npm_|pypi-|sk-|rk_live_|nvapi-|dckr_pat_|xox[abprs]-|ya29\.|AIza|dapi|local-)[\w-]{16,}",
        r"\beyJ[\w-]{8,}(?:\.[\w-]+){0,2}",
        r"\b[0-9a-f]{40}\b",  # a wandb key, a commit
    )
)
_DENSE = re.compile(r"(?<![\w/+.$-])(?!_Z|0x)[A-Za-z0-9+/_-]{32,}={0,2}(?![\w(:<])")
_URL = re.compile(rf"\b(?P<scheme>[a-z][a-z0-9+.-]{{1,15}})://(?P<rest>[^\s\"'<>)\]}},;{ALIAS}]+)")
_SCP = re.compile(r"\b[\w.-]+@[\w-]+(?:\.[\w-]+)+:(?!\d+\b)[\w./~-]+")  # git@host:path
_PUBLIC_SITE = re.compile(
    r"(?:[\w-]+\.)*(?:pytorch\.org|python\.org|kernel\.org|schedmd\.com|kubernetes\.io|readthedocs\.io|ray\.io"
    r"|docs\.nvidia\.com|developer\.nvidia\.com)(?:[/:#?]|$)|github\.com/(?:pytorch|NVIDIA|microsoft|huggingface|ray-project)/"
)
_ENDPOINTS = (
    "tcp",
    "etcd",
    "grpc",
    "redis",
    "amqp",
    "file",
    "env",
    "c10d",
)  # what follows is a host or a path: read on
_EMAIL = re.compile(
    r"[\w.+-]+@(?=[\w-]*[A-Za-z])[\w-]+(?:\.[\w-]+)*\.(?!service\b|scope\b|slice\b|socket\b|mount\b)[A-Za-z]{2,}\b"
)
_HEX = "[0-9a-fA-F]"
_IDENTIFIERS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("gpu-uuid", re.compile(rf"\b(?:MIG-)?GPU-{_HEX}{{8}}(?:-{_HEX}{{4}}){{3}}-{_HEX}{{12}}|\bMIG-{_HEX}{{8}}(?:-{_HEX}{{4}}){{3}}-{_HEX}{{12}}")),
    ("uuid", re.compile(rf"(?<!{_HEX}){_HEX}{{8}}(?:[-_]{_HEX}{{4}}){{3}}[-_]{_HEX}{{12}}(?!{_HEX})")),
    ("id", re.compile(rf"(?<!{_HEX}){_HEX}{{64}}(?!{_HEX})|\bi-0{_HEX}{{16}}\b|(?<=arn:)aws[\w-]*:[\w:/.-]+")),
    ("mac", re.compile(rf"(?<![\w:-]){_HEX}{{2}}(?::{_HEX}{{2}}){{5,19}}(?![\w:])|(?<![\w:-]){_HEX}{{2}}(?:-{_HEX}{{2}}){{5}}(?![\w-])")),
    ("guid", re.compile(rf"(?<![\w:]){_HEX}{{4}}(?::{_HEX}{{4}}){{3}}(?![\w:])|\b[HSR]-{_HEX}{{16}}\b|(?<!commId )(?<!comm )(?<!comm_id )(?<!hash )(?<!hash\": \")\b0x(?!0000){_HEX}{{16}}\b|(?i:guid)[\"']?\s*[=:]?\s*(?:0x)?{_HEX}{{12,16}}\b")),
)  # fmt: skip
_SERIAL = re.compile(r"(?i)(?<=serial)(?P<before>(?:[ _]?(?:number|no))?\.?\s*[:=]\s*)(?P<name>[\w-]{5,})")
_IPV6 = re.compile(
    rf"(?:(?<![\w:.])|(?<=Gids)){_HEX}{{0,4}}(?::{_HEX}{{0,4}}){{2,7}}(?![\w:]|\.\d)"
)  # "::ffff:10.0.0.7" is 10.0.0.7
_IPV4 = re.compile(r"(?<![\w.-])(?<!==)(?<!version )(?<!driver )(?<!v)\d{1,3}(?:\.\d{1,3}){3}(?![\w.]*\d|\.\d)")
_LOCAL = re.compile(r"127\..*|0\.0\.0\.0|255\..*|::1?|::ffff:127\..*")
_NODES = re.compile(r"(?<![\w.-])[A-Za-z][\w.-]*\[\d[\d,-]*\](?:[\w.-]*\w)?(?:,[A-Za-z][\w.-]*(?:\[\d[\d,-]*\])?)*")
_DOMAINS = (
    "internal|local|localdomain|lan|intra|corp|cluster|private|example|test|com|net|org|edu|gov|mil|io|ai|cloud|dev|eu|de|fr"
    "|uk|ch|at|nl|be|es|it|se|no|fi|dk|pl|cz|ru|jp|cn|kr|tw|sg|au|ca|us|br|il"
)
_FQDN = re.compile(
    rf"(?<![\w@./{ALIAS}-])(?P<host>[A-Za-z0-9][\w-]*)\.(?P<domain>(?:[A-Za-z0-9][\w-]*\.)+(?:{_DOMAINS}))\b(?![\w(.]*\()"
)
_WINDOWS = re.compile(r"\b[A-Z]:\\[\w\\.@ -]*\w|\\\\[\w.-]+\\[\w\\.$-]+")
_JOB = re.compile(
    r"(?P<before>\b(?i:job)(?:_?id)?s?\W{0,3}|\b(?:STEP|StepId|JobId|slurm|sacct -j|scancel|jobid)\W{1,3}|^\s*)(?P<number>\d{4,})(?![^\W_])"
)
# A person's number as the kernel and control groups write it; those below 1000 and 65534 are the system's.
_UID = re.compile(r"(?:(?P<before>\buid[=_]|\bUID[: ])|\buser-(?=\d+\.slice))(?P<number>(?!65534\b)[1-9]\d{3,})\b")
_CUT = re.compile(r"[\w./@-]{4,}(?=…?$)")


class Redactor:
    """Texts in, texts with aliases in them out; `Aliases.shown` then puts the names of the aliases in."""

    def __init__(self, names: Iterable[Name]) -> None:
        names = list(names)
        self.aliases = Aliases()
        self.known = Known((entry for entry in names if entry[0] != "file"), self.aliases)
        self.paths = Paths(self.known)
        self.files = {name for kind, name in names if kind == "file"}
        self._odd = sorted((name for name in self.files if re.search(r"[^\w./@+%=~#-]", name)), key=len, reverse=True)
        self._done: dict[str, str] = {}

    def text(self, text: str) -> str:
        """A text of any sort; the same text always becomes the same."""
        if text not in self._done:
            self._done[text] = self._text(without_aliases(text))
        return self._done[text]

    def source(self, path: str) -> str:
        """The name of a piece of evidence."""
        return self.paths.path(self._secrets(self._addresses(without_aliases(path)))) if path not in ("", "-") else path

    def host(self, name: str) -> str:
        """What stands in a field for a host: a machine whatever it is called, unless it is an address or a sentence."""
        text = without_aliases(name)
        if re.search(r"\s", text) or self._addresses(text) != text:
            return self.text(name)
        return self._machine(text)

    def _text(self, text: str) -> str:
        for path in self._odd:
            if path in text:
                text = text.replace(path, self.source(path))
        text = self._secrets(text)
        text = _UID.sub(lambda match: (match["before"] or "") + self.aliases.of("user", match["number"]), text)
        text = _URL.sub(self._url, text)
        text = _SCP.sub(lambda match: self.aliases.of("url", match[0].lower()), text)
        text = _EMAIL.sub(lambda match: self.aliases.of("email", match[0].lower()), text)
        text = self._addresses(text)
        text = _WINDOWS.sub(lambda match: self.aliases.of("path", match[0].lower()), text)
        text = self.paths.in_text(text)
        text = _NODES.sub(self._nodes, text)
        text = _JOB.sub(self._job, self.known.replaced(text))
        for kind, pattern in CONTEXTS:
            text = pattern.sub(partial(self._named, kind), text)
        text = _FQDN.sub(self._fqdn, text)
        return self._cut_off(text)

    def _secrets(self, text: str) -> str:
        for pattern in SECRETS:
            text = pattern.sub(lambda match: self._part(match, "secret"), text)
        return _DENSE.sub(lambda match: self.aliases.of("secret", match[0]) if _dense(match[0]) else match[0], text)

    def _part(self, match: re.Match[str], kind: str) -> str:
        """The match with its group of this name, or all of it, under an alias."""
        if kind not in match.re.groupindex:
            return self.aliases.of(kind, match[0])
        start, end = match.start(kind) - match.start(), match.end(kind) - match.start()
        if has_alias(match[kind]) or match[kind].startswith(("$", "<", "*")):
            return match[0]
        return match[0][:start] + self.aliases.of(kind, match[kind]) + match[0][end:]

    def _url(self, match: re.Match[str]) -> str:
        if match["scheme"] in _ENDPOINTS or (match["scheme"].startswith("http") and _PUBLIC_SITE.match(match["rest"])):
            return match[0]
        rest = match["rest"].rstrip(".:")
        tail = match["rest"][len(rest) :]
        return f"{match['scheme']}://{self.aliases.of('url', rest)}{tail}"

    def _addresses(self, text: str) -> str:
        for kind, pattern in _IDENTIFIERS:
            text = pattern.sub(partial(self._identifier, kind), text)
        text = _SERIAL.sub(lambda match: match["before"] + self.aliases.of("serial", match["name"]), text)
        text = _IPV6.sub(lambda match: self._ip(match[0], ipaddress.IPv6Address), text)
        return _IPV4.sub(lambda match: self._ip(match[0], ipaddress.IPv4Address), text)

    def _identifier(self, kind: str, match: re.Match[str]) -> str:
        return self.aliases.of(kind, match[0].lower())

    def _ip(self, text: str, form: Callable[[str], object]) -> str:
        try:
            key = str(form(text))
        except ValueError:
            return text
        return text if _LOCAL.fullmatch(key) else self.aliases.of("ip", key)

    def _job(self, match: re.Match[str]) -> str:
        number = match["number"]
        return match["before"] + self.aliases.of("job", key_of(number)) if number in self.known.numbers else match[0]

    def _nodes(self, match: re.Match[str]) -> str:
        """A list of nodes in brackets, if one of them is known."""
        members = hosts_of(match[0])
        if not 0 < len(members) <= 10_000 or not any(self.known.find(key_of(member)) for member in members):
            return match[0]
        aliases = tuple(dict.fromkeys(self.known.alias("host", member) for member in members))
        return self.aliases.of("hosts", aliases)

    def _named(self, kind: str, match: re.Match[str]) -> str:
        """What stands where only a name stands, though no other line told that it is one."""
        name = name_of(match, kind)
        if not name or has_alias(name):
            return match[0]
        start = match.start("name") - match.start()
        return match[0][:start] + self.known.alias(kind, name) + match[0][start + len(name) :]

    def _fqdn(self, match: re.Match[str]) -> str:
        if match["host"] in PACKAGES or _PUBLIC_SITE.match(match[0]):
            return match[0]
        return self._machine(match[0])

    def _machine(self, name: str) -> str:
        """A machine's name and its domain, if it has one."""
        short, _, domain = name.partition(".")
        host = self.known.alias("host", short)
        return f"{host}.{self.aliases.of('domain', domain.lower())}" if domain else host

    def _cut_off(self, text: str) -> str:
        """The last word of a text that was cut may be the beginning of a name."""
        if len(text) > 50 and (match := _CUT.search(text)) and (alias := self.known.whole(match[0])):
            return text[: match.start()] + alias + text[match.end() :]
        return text


def _dense(text: str) -> bool:
    """A key or a hash, no words: digits, capitals and small letters all through."""
    digits, upper, lower = (sum(map(test, text)) for test in (str.isdigit, str.isupper, str.islower))
    return digits > 3 and upper > 3 and lower > 3 and text.count("/") < 4 and text.count("_") < 3

"""Paths without what is private in them: their shape stays, so does what belongs to PyTorch, Python or the system.

>>> from whichrank.report.redact_names import Aliases, Known
>>> aliases = Aliases()
>>> paths = Paths(Known([], aliases))
>>> shown = lambda path: paths.path(path).translate(aliases.shown())
>>> shown("/home/jkent/envs/lm/lib/python3.11/site-packages/torch/utils/data/dataloader.py")
'…/site-packages/torch/utils/data/dataloader.py'
>>> shown("/home/jkent/kestrel/train.py"), shown("/mnt/fs7/corpus-de/shard_0012.tar"), shown("/dev/shm/nccl-Wq7bT2")
('/home/user-1/dir-1/train.py', '/path-1/dir-2/shard_0012.tar', '/dev/shm/nccl-Wq7bT2')
"""

from __future__ import annotations

import re

from whichrank.job.common_words import FILES, PACKAGES, is_common
from whichrank.report.redact_names import ALIAS, Known, has_alias

EXTENSIONS = (
    "py|pyc|ipynb|sh|sbatch|bash|slurm|ya?ml|toml|cfg|ini|conf|env|jsonl?|txt|md|csv|tsv|log|out|err|gz|zst|xz|zip|tar|tgz"
    "|pt|pth|ckpt|bin|safetensors|npz|npy|pkl|pickle|h5|hdf5|parquet|arrow|lance|mds|idx|tfrecord|wav|flac|mp3|mp4|webm|avi"
    "|jpe?g|png|webp|sqsh|sif|so(?:\\.[\\d.]+)?|dmesg|trace|db|sqlite3?|lmdb|ibd|dat|data|spec|lock"
)
_PART = rf"[\w.@+%=~#*{ALIAS}-]+"
_FIRST = _PART.replace("=", "")  # "StdOut=/scratch/x.out" is a name and a path
PATH = re.compile(
    rf"(?<![\w/.{ALIAS}…])(?:~?/{_PART}(?:/{_PART})*/?"  # absolute
    rf"|\.\.?/{_PART}(?:/{_PART})*/?"  # relative, and says so
    rf"|{_FIRST}(?:/{_PART})*(?<=\w)\.(?:{EXTENSIONS})\b(?![\w(]))"  # a file
)
# "saving out/kestrel-xl": after these words a word with a slash is a path.
SPOKEN = re.compile(
    rf"(?i)(?P<before>\b(?:(?:up|down)?load(?:ing|ed)?|sav(?:ing|ed)|wr(?:iting|ote|itten)|read(?:ing)?|resum(?:ing|ed)|restor(?:ing|ed)"
    rf"|open(?:ing|ed)?|copy(?:ing)?|checkpoint)(?:(?: \w+){{0,2}} (?:to|from|at|in))? [\"']?)(?P<path>{_PART}(?:/{_PART})+/?)"
)
_SEGMENT = re.compile(r"nccl-\w{6}")  # NCCL's own in /dev/shm
_ENDING = re.compile(rf"(?:\.(?:{EXTENSIONS}))+$")
_NUMBERS = re.compile(r"[\d.,]+(?:/[\d.,]+)+|\w{1,8}/(?:s|sec|it|iter|step|batch|gpu|epoch)")
_LIBRARIES = re.compile(
    r"lib(?:c|m|dl|rt|pthread|stdc\+\+|gcc_s|gomp|torch|c10|shm|cu|nv|nccl|rccl|hip|roc|hsa|mpi|open-|ucx|ucp|uct|ucs|ucm"
    r"|ib|mlx|rdma|fabric|numa|python|jemalloc|tcmalloc|iomp|mkl|gloo|z|ssl|crypto|tensorpipe)[\w+.-]*\.so[\d.]*"
)
_WHOLE = frozenset(("usr", "lib", "lib64", "lib32", "bin", "sbin", "etc", "proc", "sys", "run", "boot", "__w"))
_PARTLY = frozenset(("opt", "var", "tmp", "root", "dev"))  # what lies below them may be anybody's
_HOMES = frozenset(("home", "users", "Users", "u"))
_MOUNTS = frozenset(("mnt", "media", "nfs", "vol", "volumes", "export", "net", "srv", "shared", "gpfs", "lustre"))
_SOURCES = frozenset(("gloo", "third_party", "csrc", "c10", "c10d", "aten", "transport", "nccl"))  # C++ of all of us
_TORCH = frozenset(
    ("csrc", "distributed", "utils", "nn", "autograd", "cuda", "optim", "_dynamo", "_inductor", "lib", "_C")
)


class Paths:
    """Paths and file names under aliases."""

    def __init__(self, known: Known) -> None:
        self.known = known
        self.aliases = known.aliases

    def in_text(self, text: str) -> str:
        text = PATH.sub(lambda match: self.path(match[0]), text)
        return SPOKEN.sub(lambda match: match["before"] + self._spoken(match["path"]), text)

    def _spoken(self, path: str) -> str:
        return path if _NUMBERS.fullmatch(path) else self.path(path)

    def path(self, path: str) -> str:
        """One path, absolute or not."""
        sentence = re.search(r"(?<=\w)[.,]$", path)  # the full stop of a sentence, not of the name
        if sentence and not re.search(rf"\.(?:{EXTENSIONS})\.$", path[:-1]):
            return self.path(path[:-1]) + path[-1]
        parts = path.split("/")
        if (public := _public(parts)) is not None:
            before = parts[:public] if _system(parts, public) else ["…"]
            return "/".join([*before, *map(self.known.in_path, parts[public:])])
        root = 0
        shown: list[str] = []
        if parts[0] in ("", "~") and len(parts) > 1:
            root, shown = self._root(parts)
        names = parts[root:]
        for place, part in enumerate(names):
            shown.append(self._file(part) if place == len(names) - 1 else self._folder(part))
        return "/".join(shown)

    def _root(self, parts: list[str]) -> tuple[int, list[str]]:
        """How many parts are the path's root, and how that is shown."""
        top = parts[1]
        if parts[0] == "~" or not top or top.startswith("."):
            return 1, parts[:1]
        if top in _WHOLE or (top == "dev" and parts[2:3] != ["shm"]):
            local = top == "usr" and parts[2:3] == ["local"]
            return (3 if local else len(parts)), [*parts[:3]] if local else [self.known.in_path(p) for p in parts]
        if top in _PARTLY:
            return 2, parts[:2]
        if top in _HOMES and len(parts) > 2 and parts[2]:
            user = parts[2] if has_alias(parts[2]) else self.known.alias("user", parts[2])
            return 3, [*parts[:2], user]
        deep = top in _MOUNTS and len(parts) > 2 and bool(parts[2]) and not (len(parts) == 3 and "." in parts[2])
        size = 3 if deep else 2
        return size, ["", self.aliases.of("path", "/".join(parts[:size]))]

    def _folder(self, part: str) -> str:
        if part in ("", ".", "..", "…") or re.fullmatch(r"python[\d.]+|\.?venv|\.cache", part):
            return part
        found = self.known.in_path(part)
        return found if part in PACKAGES or _rest_is_common(found) else self._named("dir", part, found)

    def _file(self, name: str) -> str:
        if name in ("", ".", "..", "…") or _LIBRARIES.fullmatch(name) or _SEGMENT.fullmatch(name):
            return name
        found = self.known.in_path(name)
        module = found.removesuffix(".py")
        if _rest_is_common(found) or (module != found and (module in PACKAGES or module in FILES)):
            return found
        if (ending := _ENDING.search(found)) is None:
            return self._named("dir", name, found)  # a folder that a path ends in
        return self._named("file", name[: -len(ending[0])], found[: -len(ending[0])]) + ending[0]

    def _named(self, kind: str, name: str, found: str) -> str:
        """An alias for a part of a path, behind those of the names that it holds."""
        return "-".join([*dict.fromkeys(re.findall(f"[{ALIAS}]", found)), self.aliases.of(kind, name.lower())])


def _public(parts: list[str]) -> int | None:
    """Where a path enters what everybody has: a package that is known, Python's own library."""
    for place, part in enumerate(parts):
        after = parts[place + 1] if place + 1 < len(parts) else ""
        if part in _SOURCES and parts[-1].endswith((".cc", ".cpp", ".h", ".cu", ".hpp")):
            return place
        if part in ("site-packages", "dist-packages") and after.split(".")[0] in PACKAGES:
            return place
        if part == "torch" and after in _TORCH:
            return place
        if re.fullmatch(r"python3(?:\.\d+)?", part) and after.split(".")[0] in PACKAGES:
            return max(0, place - 1)
    if len(parts) > 1 and parts[0] in PACKAGES and parts[0] not in ("test", "code", "site", "this"):
        return 0
    return None


def _system(parts: list[str], public: int) -> bool:
    """Is all that stands before it the system's, or no name?"""
    if set(parts[:public]) <= {".", ".."}:
        return True
    return parts[0] == "" and len(parts) > 1 and (parts[1] in _WHOLE or all(map(is_common, parts[:public])))


def _rest_is_common(text: str) -> bool:
    """Is what stands beside the aliases no name?"""
    return is_common(re.sub(f"[{ALIAS}]", " ", text))

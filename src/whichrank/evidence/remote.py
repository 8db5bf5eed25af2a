"""Evidence in object stores: s3://bucket/run/, gs://, abfs://, and whatever else fsspec knows.

fsspec is imported only where a URL is given. Credentials are those that its drivers find by themselves (environment,
profile, instance role). Listings are recursive; files are read as streams.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, NamedTuple, cast

from whichrank.facts import Gap

BLOCK = 4 << 20  # bytes that are asked for at once
EXTRA = "pip install 'whichrank[cluster]'"
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_GLOB = re.compile(r"[*?[]")
_DRIVERS = {
    "s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "abfs": "adlfs", "abfss": "adlfs", "az": "adlfs",
    "hdfs": "pyarrow", "http": "aiohttp", "https": "aiohttp", "sftp": "paramiko", "ssh": "paramiko",
    "oci": "ocifs", "oss": "ossfs", "hf": "huggingface_hub",
}  # fmt: skip


class Listed(NamedTuple):
    """A file: its name relative to the parent of what was asked for, its URL, its size (0: not known)."""

    name: str
    url: str
    bytes: int


def is_url(text: str) -> bool:
    r"""
    >>> is_url("s3://bucket/run"), is_url("C:\\logs"), is_url("logs/a://b")
    (True, False, False)
    """
    return _URL.match(text) is not None


def listed(url: str) -> Iterator[Listed | Gap]:
    """All files under a URL (a file, a folder, a glob), hidden ones left out. A Gap says what stood in the way."""
    try:
        yield from _listed(url) or [Gap(url, "no such file or folder, or an empty one")]
    except Exception as error:  # each driver raises its own
        yield _gap(url, error)


def _listed(url: str) -> list[Listed | Gap]:
    from whichrank.evidence.digested import walked

    files, path = _at(url)
    found: dict[str, Any] = {}
    tops = sorted(files.glob(path)) if _GLOB.search(path) else [path.rstrip("/")]
    for top in tops:
        parent = top.rpartition("/")[0]
        for name, info in files.find(top, detail=True).items():
            within = name[len(top) :].strip("/")
            hidden = "/." in within  # as in folders: those right at the top were meant
            if info.get("type", "file") == "file" and not name.endswith("/") and not hidden:
                label = name[len(parent) :].strip("/") if within else (url if len(tops) == 1 else name)
                found[name] = Listed(label, files.unstrip_protocol(name), int(info.get("size") or 0))
    return sorted(found.values(), key=lambda entry: walked(entry.name))


@contextmanager
def opened(url: str) -> Iterator[BinaryIO | Gap]:
    """A file's bytes; a Gap where it cannot be opened."""
    try:
        files, path = _at(url)
        file = files.open(path, "rb", block_size=BLOCK)
    except Exception as error:  # each driver raises its own
        yield _gap(url, error)
        return
    with file:
        yield cast(BinaryIO, _Stream(file))


def _at(url: str) -> tuple[Any, str]:
    from fsspec.core import url_to_fs

    files, path = url_to_fs(url)
    return files, str(path)


class _Stream:
    """A driver's errors while reading, as those of a file."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.seek, self.tell, self.seekable = file.seek, file.tell, file.seekable

    def read(self, size: int = -1) -> bytes:
        try:
            return self._file.read(size)  # type: ignore[no-any-return]
        except OSError:
            raise
        except Exception as error:
            raise OSError(0, _text(error)) from error


def _gap(url: str, error: Exception) -> Gap:
    protocol = url.partition("://")[0].lower()
    if isinstance(error, ImportError):
        if (error.name or "").partition(".")[0] == "fsspec":
            return Gap(url, "a URL: reading those needs fsspec, which is not installed", "", EXTRA)
        driver = _DRIVERS.get(protocol)
        what = f"{protocol}:// needs the package {driver}" if driver else _text(error)
        return Gap(
            url, f"{what}, which is not installed" if driver else what, "", f"pip install {driver}" if driver else ""
        )
    if isinstance(error, ValueError) and "rotocol" in str(error):
        return Gap(url, f"no storage is known whose URLs begin with {protocol}://")
    if isinstance(error, FileNotFoundError):
        return Gap(url, "no such file or folder")
    if "redential" in type(error).__name__ or "redential" in str(error):
        return Gap(
            url,
            f"no valid credentials were found for {protocol}://: {_text(error)}",
            "access to it, as its own tools need it",
        )
    if isinstance(error, PermissionError):
        return Gap(url, f"access denied: {_text(error)}", "an identity that may list and read it")
    return Gap(url, f"cannot be read: {_text(error)}")


def _text(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__

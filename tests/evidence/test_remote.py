"""URLs are read like folders, by whatever fsspec has for them; what stands in the way is said with what helps."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path

import pytest
from rings import culprits, written

from whichrank import diagnose
from whichrank.evidence import read
from whichrank.evidence.remote import is_url

fsspec = pytest.importorskip("fsspec")
memory = pytest.importorskip("fsspec.implementations.memory")


@pytest.fixture
def bucket(tmp_path: Path) -> str:
    """memory://bucket/NAME with dumps of eight ranks, packed and hidden files, folders."""
    folder = written(tmp_path / "run", world=8, stuck=5)
    (folder / "node-1").mkdir()
    (folder / "node-1" / "train.log.gz").write_bytes(gzip.compress(b"[rank1] step 7\n"))
    (folder / "node-1" / ".cache").write_bytes(b"hidden")
    store = fsspec.filesystem("memory")
    store.put(str(folder), f"/bucket/{tmp_path.name}/run", recursive=True)
    return f"memory://bucket/{tmp_path.name}/run"


def test_the_same_as_a_folder(bucket: str, tmp_path: Path) -> None:
    there, here = read([bucket]), read([str(tmp_path / "run")])
    assert [source.path for source in there.sources] == [source.path for source in here.sources]
    assert [source.bytes for source in there.sources] == [source.bytes for source in here.sources]
    assert culprits(diagnose([bucket])) == culprits(diagnose([str(tmp_path / "run")])) == [5]


@pytest.mark.parametrize("ending", ["", "/"])
def test_file_urls(bucket: str, tmp_path: Path, ending: str) -> None:
    assert culprits(diagnose([(tmp_path / "run").as_uri() + ending])) == [5]


def test_one_file_and_globs(bucket: str) -> None:
    assert [source.path for source in read([f"{bucket}/comm_lib_trace_rank_3"]).sources] == [
        f"{bucket}/comm_lib_trace_rank_3"
    ]
    assert len(read([f"{bucket}/comm_lib_trace_rank_[0-3]"]).sources) == 4
    assert len(read([bucket, f"{bucket}/comm_lib_trace_rank_3"]).sources) == 9  # each file once


def test_read_as_a_stream(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No read asks for more than a few MiB at once."""
    from whichrank.evidence import remote

    asked: list[int] = []
    before = remote._Stream.read

    def spy(self: remote._Stream, size: int = -1) -> bytes:
        asked.append(size)
        return before(self, size)

    monkeypatch.setattr(remote._Stream, "read", spy)
    read([bucket])
    assert asked and all(0 < size <= 8 << 20 for size in asked)


@pytest.mark.parametrize(
    ("url", "why", "command"),
    [
        ("memory://bucket/nothing", "no such file or folder", ""),
        ("file:///nowhere/at/all", "no such file or folder", ""),
        ("nonsense://bucket/run", "no storage is known whose URLs begin with nonsense://", ""),
    ],
)
def test_what_stands_in_the_way(url: str, why: str, command: str) -> None:
    gap = read([url]).gaps[0]
    assert gap.what == url and why in gap.why and gap.command == command


@pytest.mark.parametrize(("protocol", "driver"), [("s3", "s3fs"), ("gs", "gcsfs"), ("abfs", "adlfs")])
def test_a_missing_driver_is_named(protocol: str, driver: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, driver, None)
    gap = read([f"{protocol}://bucket/run"]).gaps[0]
    assert driver in gap.why and gap.command == f"pip install {driver}"


def test_without_fsspec_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fsspec", None)
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    gap = read(["s3://bucket/run"]).gaps[0]
    assert "fsspec" in gap.why and "whichrank[cluster]" in gap.command


class Refused(memory.MemoryFileSystem):  # type: ignore[misc, name-defined]
    protocol = "refused"

    def find(self, *_: object, **__: object) -> dict[str, object]:
        raise self.error

    error: Exception = OSError()


class NoCredentialsError(Exception):
    """As botocore's, which is no OSError."""


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (NoCredentialsError("Unable to locate credentials"), "no valid credentials were found for refused://"),
        (PermissionError("Forbidden"), "access denied"),
        (TimeoutError("no answer"), "cannot be read: no answer"),
        (RuntimeError("broken \n driver"), "cannot be read: broken driver"),
    ],
)
def test_errors_of_drivers_become_gaps(error: Exception, why: str) -> None:
    fsspec.register_implementation("refused", Refused, clobber=True)
    Refused.error = error
    assert why in read(["refused://bucket/run"]).gaps[0].why


def test_a_driver_that_fails_in_the_middle_leaves_what_came_before(
    bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from whichrank.evidence import remote

    class Broken:
        seek = tell = None

        def __init__(self) -> None:
            self.reads = 0

        def seekable(self) -> bool:
            return False

        def read(self, size: int) -> bytes:
            self.reads += 1
            if self.reads > 1:
                raise NoCredentialsError("token expired")
            return b"[rank1] step 7\n"

        def __enter__(self) -> Broken:
            return self

        def __exit__(self, *_: object) -> None:
            pass

    class Files:
        def open(self, *_: object, **__: object) -> Broken:
            return Broken()

    listed = remote._at
    monkeypatch.setattr(remote, "_at", lambda url: listed(url) if url == bucket else (Files(), url))
    evidence = read([bucket])
    assert any("cannot be read further: token expired" in gap.why for gap in evidence.gaps)
    assert any(line.text == "step 7" for line in evidence.said)


def test_names_of_files_are_no_urls() -> None:
    assert not any(map(is_url, ("logs", "/a//b", "C:\\logs", "c://logs", "a b://c", "-")))


def test_fsspec_is_imported_for_urls_only(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("[rank0] step 1\n", encoding="utf-8")
    code = f"import sys, whichrank; whichrank.diagnose([{str(tmp_path)!r}]); assert 'fsspec' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)

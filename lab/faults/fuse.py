"""A file system in user space that serves a folder, and lets single files hang or crawl. Needs root, Linux, /dev/fuse.

Speaks the kernel's protocol itself (include/uapi/linux/fuse.h, version 7.31, 64 bit), as much of it as reading and
writing flat files takes. When the server's descriptor closes, the kernel ends all that waits for an answer.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

HEADER = struct.Struct("<IIQQIIIHH")
LARGEST = 128 * 1024
LOOKUP, FORGET, GETATTR, SETATTR, UNLINK, OPEN, READ, WRITE, STATFS, RELEASE = 1, 2, 3, 4, 10, 14, 15, 16, 17, 18
INIT, OPENDIR, RELEASEDIR, CREATE, INTERRUPT, BATCH_FORGET = 26, 27, 29, 35, 36, 42
UNANSWERED = (FORGET, INTERRUPT, BATCH_FORGET)
MNT_DETACH = 2
SOURCE, TYPE = "dataserver:/export", "fuse.export"  # what /proc/mounts says
ASYNC_READ = 1  # reads go through the page cache's readahead, as a network file system's do: they wait in state D


class Files:
    """hang: names whose reads and writes get no answer. rate: bytes per second, by name. delay: seconds, of every request."""

    def __init__(self, folder: Path, device: int) -> None:
        self.folder, self.device = folder, device
        self.hang: set[str] = set()
        self.delay = 0.0
        self.rate: dict[str, float] = {}
        self.closed = threading.Event()
        self.names: dict[int, str] = {}  # by inode of the file served
        self.answers = {
            LOOKUP: self.lookup, GETATTR: self.getattr, SETATTR: self.setattr, OPEN: self.opened, OPENDIR: self.opened,
            READ: self.read, WRITE: self.write, STATFS: self.statfs, RELEASE: self.done, RELEASEDIR: self.done,
            CREATE: self.create, INIT: self.init, UNLINK: self.unlink,
        }  # fmt: skip

    def serve(self) -> None:
        while not self.closed.is_set():
            try:
                request = os.read(self.device, LARGEST + 4096)
            except OSError as why:
                if why.errno in (errno.EINTR, errno.EAGAIN, errno.ENOENT):
                    continue
                return  # unmounted
            if len(request) < HEADER.size:
                return  # closed
            opcode = HEADER.unpack_from(request)[1]
            if opcode in (READ, WRITE) or (self.delay and opcode not in UNANSWERED):
                threading.Thread(target=self.answer, args=(request,), daemon=True).start()
            elif opcode not in UNANSWERED:
                self.answer(request)

    def answer(self, request: bytes) -> None:
        _, opcode, unique, node, *_ = HEADER.unpack_from(request)
        error, body = 0, b""
        if opcode != INIT:
            self.closed.wait(self.delay)
        try:
            made = self.answers[opcode](node, request[HEADER.size :]) if opcode in self.answers else None
            if made is None:
                error = errno.ENOSYS
            else:
                body = made
        except OSError as why:
            error = why.errno or errno.EIO
        with suppress(OSError):
            os.write(self.device, struct.pack("<IiQ", 16 + len(body), -error, unique) + body)

    def init(self, node: int, body: bytes) -> bytes:
        return struct.pack("<IIIIHHIIHH8I", 7, 31, LARGEST, ASYNC_READ, 16, 12, LARGEST, 1, 0, 0, *[0] * 8)

    def path(self, node: int) -> Path:
        return self.folder if node == 1 else self.folder / self.names[node]

    def attributes(self, path: Path) -> bytes:
        a = path.stat()
        inode = 1 if path == self.folder else a.st_ino
        times = (int(a.st_atime), int(a.st_mtime), int(a.st_ctime), 0, 0, 0)
        mode = a.st_mode if path == self.folder else stat.S_IFREG | 0o644
        return struct.pack(
            "<6Q10I", inode, a.st_size, a.st_blocks, *times[:3], *times[3:], mode, 1, a.st_uid, a.st_gid, 0, 4096, 0
        )

    def entry(self, name: str) -> bytes:
        path = self.folder / name
        inode = path.stat().st_ino
        self.names[inode] = name
        return struct.pack("<QQQQII", inode, 0, 1, 1, 0, 0) + self.attributes(path)

    def lookup(self, node: int, body: bytes) -> bytes:
        return self.entry(body.rstrip(b"\0").decode())

    def getattr(self, node: int, body: bytes) -> bytes:
        return struct.pack("<QII", 1, 0, 0) + self.attributes(self.path(node))

    def setattr(self, node: int, body: bytes) -> bytes:
        valid, _, _, size = struct.unpack_from("<IIQQ", body)
        if valid & 8:  # FATTR_SIZE
            os.truncate(self.path(node), size)
        return self.getattr(node, body)

    def opened(self, node: int, body: bytes) -> bytes:
        return struct.pack("<QII", 0, 0, 0)

    def create(self, node: int, body: bytes) -> bytes:
        name = body[16:].rstrip(b"\0").decode()
        (self.folder / name).touch()
        return self.entry(name) + self.opened(node, body)

    def unlink(self, node: int, body: bytes) -> bytes:
        (self.folder / body.rstrip(b"\0").decode()).unlink()
        return b""

    def paced(self, node: int, size: int) -> None:
        name = self.names[node]
        if name in self.hang:
            self.closed.wait()
            raise OSError(errno.EIO, name)
        if name in self.rate:
            self.closed.wait(size / self.rate[name])

    def read(self, node: int, body: bytes) -> bytes:
        _, offset, size = struct.unpack_from("<QQI", body)
        with self.path(node).open("rb") as file:
            file.seek(offset)
            data = file.read(size)
        self.paced(node, len(data))
        return data

    def write(self, node: int, body: bytes) -> bytes:
        _, offset, size = struct.unpack_from("<QQI", body)
        self.paced(node, size)
        with self.path(node).open("r+b") as file:
            file.seek(offset)
            file.write(body[40 : 40 + size])
        return struct.pack("<II", size, 0)

    def statfs(self, node: int, body: bytes) -> bytes:
        return struct.pack("<5Q4I6I", 1 << 20, 1 << 19, 1 << 19, 1 << 16, 1 << 15, 4096, 255, 4096, 0, *[0] * 6)

    def done(self, node: int, body: bytes) -> bytes:
        return b""


def sweep() -> None:
    """Takes away mounts whose server is gone: a lab that was killed could not."""
    libc = ctypes.CDLL(None, use_errno=True)
    for line in Path("/proc/mounts").read_text().splitlines():
        source, at, kind = line.split()[:3]
        if (source, kind) == (SOURCE, TYPE):
            try:
                Path(at).stat()
            except OSError as why:
                if why.errno == errno.ENOTCONN:
                    libc.umount2(os.fsencode(at), MNT_DETACH)


@contextmanager
def mounted(folder: Path, at: Path) -> Iterator[Files]:
    """The folder, served at another place until the block ends; whoever waits for it then gets an error."""
    libc = ctypes.CDLL(None, use_errno=True)
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other"
    if libc.mount(SOURCE.encode(), os.fsencode(at), TYPE.encode(), 0, options.encode()):
        os.close(device)
        raise OSError(ctypes.get_errno(), f"mount {at}: {os.strerror(ctypes.get_errno())}")
    files = Files(folder, device)
    thread = threading.Thread(target=files.serve, daemon=True)
    thread.start()
    try:
        yield files
    finally:
        files.closed.set()
        libc.umount2(os.fsencode(at), MNT_DETACH)
        os.close(device)
        thread.join(5)

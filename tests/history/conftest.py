"""Databases for the tests: a file, and a PostgreSQL server of their own in a temporary folder."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


def binaries() -> Path | None:
    """Where PostgreSQL's server programs are: Debian keeps them off the PATH."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[4].split(".")[0]))
    if found:
        return found[-1].parent
    other = shutil.which("initdb")
    return Path(other).parent if other else None


def ordinary_user() -> str | None:
    """PostgreSQL will not run as root."""
    if os.getuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    return next((name for name in ("postgres", "nobody") if name in known), None)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """The URL of a running server, "/" and the name of a database to be added."""
    bins = binaries()
    if bins is None:
        pytest.skip("PostgreSQL is not installed (apt-get install postgresql)")
    user = ordinary_user()
    folder = Path(tempfile.mkdtemp(prefix="whichrank-pg-", dir="/tmp"))  # a socket's path must be short
    try:
        if user:
            shutil.chown(folder, user)
        folder.chmod(0o700)
        data, port = folder / "data", free_port()

        def run(*command: str) -> None:
            subprocess.run(
                command,
                check=True,
                capture_output=True,
                timeout=120,
                user=user,
                cwd=folder,
                env={**os.environ, "LC_ALL": "C"},
            )

        run(str(bins / "initdb"), "-D", str(data), "-U", "tester", "--auth=trust", "--no-sync", "-E", "UTF8")
        options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={folder} -c fsync=off"
        run(str(bins / "pg_ctl"), "-D", str(data), "-w", "-t", "60", "-l", str(folder / "log"), "-o", options, "start")
        try:
            yield f"postgresql://tester@127.0.0.1:{port}"
        finally:
            run(str(bins / "pg_ctl"), "-D", str(data), "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database of each sort."""
    pytest.importorskip("sqlalchemy", reason="pip install 'whichrank[history]'")
    if request.param == "sqlite":
        return str(tmp_path / "history.db")
    import psycopg

    base = str(request.getfixturevalue("server"))
    name = f"t{abs(hash(request.node.nodeid)) % 10**9}"
    with psycopg.connect(f"{base}/postgres", autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {name}")  # type: ignore[arg-type]
        connection.execute(f"CREATE DATABASE {name}")  # type: ignore[arg-type]
    return f"{base}/{name}"

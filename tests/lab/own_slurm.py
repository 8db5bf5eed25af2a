"""A real Slurm of two nodes on this machine, for a test: munged, slurmctld and two slurmd of its own, in a folder of its own.

Needs Debian's slurm-wlm and munge (slurm 22.05), no root. Everything that it starts is a child of this process and ends with it.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"  # where ordinary users do not look
TOOLS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scancel", "sinfo")
NODES = ("n1", "n2")
UP = 40.0  # seconds for the nodes to answer


def missing() -> str | None:
    """Why there can be none."""
    gone = [name for name in TOOLS if shutil.which(name, path=PATH) is None]
    return f"needs Debian's slurm-wlm and munge (no {gone[0]} here)" if gone else None


CONF = """\
ClusterName=lab
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={control}
AuthType=auth/munge
AuthInfo=socket={base}/munge.socket
CredType=cred/munge
SlurmUser={user}
SlurmdUser={user}
StateSaveLocation={base}/state
SlurmdSpoolDir={base}/spool-%n
SlurmctldPidFile={base}/ctld.pid
SlurmdPidFile={base}/slurmd-%n.pid
SlurmctldLogFile={base}/ctld.log
SlurmdLogFile={base}/slurmd-%n.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
KillWait=15
JobAcctGatherType=jobacct_gather/none
{nodes}
PartitionName=p Nodes=n[1-2] Default=YES MaxTime=INFINITE State=UP
"""


@dataclass(frozen=True, slots=True)
class Slurm:
    base: Path

    def run(self, *command: str, **more: str) -> str:
        done = subprocess.run(command, env=self.env(**more), capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout

    def env(self, **more: str) -> dict[str, str]:
        return {**os.environ, "PATH": PATH, "SLURM_CONF": str(self.base / "slurm.conf"), **more}


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


@contextmanager
def slurm(base: Path) -> Iterator[Slurm]:
    """Raises RuntimeError where it does not come up."""
    base.chmod(0o755)
    host, user = socket.gethostname().partition(".")[0], pwd.getpwuid(os.getuid()).pw_name
    control, *ports = free_ports(1 + len(NODES))
    nodes = "\n".join(
        f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=2 State=UNKNOWN"
        for name, port in zip(NODES, ports, strict=True)
    )
    (base / "slurm.conf").write_text(CONF.format(host=host, user=user, base=base, control=control, nodes=nodes))
    (base / "state").mkdir()
    key = base / "munge.key"
    key.write_bytes(os.urandom(256))
    key.chmod(0o600)
    made = Slurm(base)
    files = [
        f"--{name}={base}/munge.{name.partition('-')[0]}" for name in ("pid-file", "log-file", "seed-file", "socket")
    ]
    children: list[subprocess.Popen[bytes]] = []
    try:
        with (base / "daemons.log").open("wb") as log:
            for command in (
                ["munged", "--foreground", "--force", f"--key-file={key}", *files],
                ["slurmctld", "-D", "-f", str(base / "slurm.conf")],
                *(["slurmd", "-D", "-f", str(base / "slurm.conf"), "-N", name] for name in NODES),
            ):
                children.append(
                    subprocess.Popen(command, env=made.env(), stdout=log, stderr=log, stdin=subprocess.DEVNULL)
                )
                if command[0] == "munged":
                    _wait_for(base / "munge.socket")
        _wait_until_idle(made)
        yield made
    finally:
        _end(made, children)


def _wait_for(path: Path) -> None:
    until = time.monotonic() + 10
    while not path.exists():
        if time.monotonic() > until:
            raise RuntimeError(f"no {path.name}")
        time.sleep(0.05)


def _wait_until_idle(made: Slurm) -> None:
    until, said = time.monotonic() + UP, ""
    while time.monotonic() < until:
        asked = subprocess.run(
            ["sinfo", "-h", "-N", "-o", "%t"], env=made.env(), capture_output=True, text=True, timeout=60, check=False
        )
        said = asked.stdout + asked.stderr
        if asked.stdout.split() == ["idle"] * len(NODES):
            return
        time.sleep(0.3)
    raise RuntimeError(f"Slurm's nodes did not come up: {said}\n{(made.base / 'daemons.log').read_text()[-2000:]}")


def _end(made: Slurm, children: list[subprocess.Popen[bytes]]) -> None:
    """Jobs first; slurmd leaves a job's steps to themselves when it ends."""
    subprocess.run(["scancel", "--full", "-t", "running"], env=made.env(), capture_output=True, timeout=30, check=False)
    time.sleep(1)
    for child in reversed(children):
        child.send_signal(signal.SIGTERM)
        try:
            child.wait(15)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()

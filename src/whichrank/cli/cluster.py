"""Reading by the workers of a Dask cluster (dask.distributed), through its concurrent.futures.Executor."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager

from whichrank import __version__
from whichrank.errors import UsageProblem

WAIT = "10s"  # for the scheduler's first answer


@contextmanager
def dask(address: str) -> Iterator[Executor]:
    """An executor on the cluster whose scheduler listens at `address` ("tcp://10.0.0.1:8786", "scheduler.json").

    Raises UsageProblem where there is none, or where its workers have another whichrank.
    """
    try:
        from distributed import Client
    except ImportError:
        raise UsageProblem("--dask needs dask.distributed: pip install 'whichrank[cluster]'") from None
    place = {"scheduler_file": address} if address.endswith(".json") else {"address": address}
    try:
        client = Client(**place, timeout=WAIT, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        raise UsageProblem(f"no Dask scheduler answers at {address}: {str(error) or type(error).__name__}") from error
    try:
        _alike(client.run(_version, on_error="return"), address)
        yield client.get_executor(pure=False)
    finally:
        client.close()


def _alike(versions: dict[str, object], address: str) -> None:
    if not versions:
        raise UsageProblem(f"the Dask cluster at {address} has no workers")
    other = {worker: version for worker, version in versions.items() if version != __version__}
    if other:
        worker, version = min(other.items())
        has = f"whichrank {version}" if isinstance(version, str) else "no whichrank"
        raise UsageProblem(f"{len(other)} of {len(versions)} Dask workers have another version: {worker} has {has}, here is {__version__}")  # fmt: skip


def _version() -> str:
    return __version__

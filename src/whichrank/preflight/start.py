"""One rank from start to end: it finds the others, follows rank 0, and, where it is rank 0, conducts and answers."""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from whichrank.preflight import agent_store, follow, interfaces, meeting
from whichrank.preflight.answer import Answer
from whichrank.preflight.conduct import Asked, Conductor
from whichrank.preflight.meeting import Store, Unreachable
from whichrank.preflight.place import Place


@dataclass(frozen=True, slots=True)
class Alone:
    """This rank could not take part. says, do: as in a finding."""

    says: str
    do: str


def take_part(place: Place, asked: Asked, tell: Callable[[str], None], show: Callable[[Answer], None]) -> bool | Alone:
    """Whether it is a go, or why this rank could not take part. Rank 0 shows the answer."""
    server = None
    try:
        if place.rank == 0 and not place.agent_store:
            if twin := _twin(place):
                return twin
            try:
                server = meeting.Server(place.port, place.run)
            except OSError as error:
                return _no_port(place, error)
            store: Store = meeting.join("localhost", server.port, place.run, 5)
        else:
            store = _joined(place, asked.wait)
    except Unreachable as problem:
        return _unreachable(place, problem, asked.wait)
    try:
        return (
            _conducted(place, asked, store, server, tell, show) if place.rank == 0 else _followed(place, asked, store)
        )
    finally:
        if server:
            server.close()


def _twin(place: Place) -> Alone | None:
    """Another rank 0, of another node, that answers at MASTER_ADDR."""
    with suppress(Unreachable):
        if not _own(meeting.resolved(place.master)):
            meeting.join(place.master, place.port, place.run, 2).close()
            return Alone(
                f"{socket.gethostname()} was told to be rank 0, and rank 0 runs already on {place.master}.",
                "give each node a --node-rank (or RANK) of its own",
            )
    return None


def _own(addresses: Sequence[str]) -> bool:
    own = {address for one in interfaces.interfaces() for address in one.addresses}
    return any(address.startswith("127.") or address == "::1" or address in own for address in addresses)


def _joined(place: Place, seconds: float) -> Store:
    if place.agent_store:
        return agent_store.join(place.master, place.port, f"whichrank-preflight/{place.run}", seconds)
    return meeting.join(place.master, place.port, place.run, seconds)


def _conducted(
    place: Place,
    asked: Asked,
    store: Store,
    server: meeting.Server | None,
    tell: Callable[[str], None],
    show: Callable[[Answer], None],
) -> bool:
    """The own part as a rank is played by a thread with a connection of its own."""
    own: Store = meeting.join("localhost", server.port, place.run, 5) if server else _joined(place, 10)
    ticket = follow.come(own, place)
    follower = threading.Thread(target=follow.follow, args=(own, place, ticket, patience(asked)), daemon=True)
    follower.start()
    conductor = Conductor(store, place, asked, tell)
    answer = conductor.run()
    try:
        show(answer)
    finally:
        conductor.end()
        follow.farewell(store, len(conductor.came.tickets) - 1, 3)
    return answer.go


def patience(asked: Asked) -> float:
    return asked.seconds + asked.wait + 60


def _followed(place: Place, asked: Asked, store: Store) -> bool | Alone:
    try:
        ticket = follow.come(store, place)
        end = follow.follow(store, place, ticket, patience(asked))
    except (OSError, follow.Lost) as error:
        return Alone(
            f"Rank 0 went away before it answered ({error}).",
            f"look at the output of rank 0 on {place.master}: it was killed, or failed",
        )
    try:
        store.put(f"gone/{store.add('gone')}", b"")
    except OSError:
        pass  # rank 0 did not wait
    return bool(end["go"])


def _no_port(place: Place, error: OSError) -> Alone:
    return Alone(
        f"Rank 0 on {socket.gethostname()} cannot listen on port {place.port}, nor on the {meeting.TRIED - 1} after it: {error.strerror or error}.",
        f"choose another MASTER_PORT, or end what holds it: ss -ltnp 'sport = :{place.port}'",
    )


def _unreachable(place: Place, problem: Unreachable, seconds: float) -> Alone:
    """What a rank that finds nobody says of itself: the others can only say that it never came."""
    here = socket.gethostname()
    source = interfaces.towards(place.master, place.port)
    own = [f"{one.name} {one.addresses[0]}" for one in interfaces.interfaces() if one.addresses and one.name != "lo"]
    way = f" (from {source})" if source else ""
    says = f"Rank {place.rank} on {here} did not reach rank 0 at {place.master} port {place.port} in {seconds:.0f} s: {problem.detail}{way}."
    do = {
        "name": f"set MASTER_ADDR to a name or address that {here} knows (getent hosts {place.master}; /etc/hosts, DNS)",
        "refused": f"nobody listens there: is rank 0 running on {place.master}, with the same MASTER_PORT, and is MASTER_ADDR its node?",
        "silent": f"packets are dropped, or the node is down: ping {place.master}; let TCP port {place.port} through its firewall; this node "
        f"has {', '.join(own) or 'no address but loopback'}",
        "unreachable": f"no way from here to there: ip route get {place.master}; this node has {', '.join(own) or 'no address but loopback'}",
        "stranger": f"another program holds that port on {place.master}: choose another MASTER_PORT (ss -ltnp there)",
    }[problem.kind]
    return Alone(says, do)


def local(count: int, words: list[str]) -> int:
    """Starts so many ranks on this node and waits for them; the exit code is rank 0's."""
    import subprocess

    with meeting.listening(0) as one:
        port = one.getsockname()[1]
    ranks = []
    for rank in range(count):
        env = {
            **os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count),
            "MASTER_ADDR": "localhost", "MASTER_PORT": str(port),
        }  # fmt: skip
        out = None if rank == 0 else subprocess.DEVNULL
        ranks.append(subprocess.Popen([sys.executable, "-m", "whichrank.preflight", *words], env=env, stdout=out))
    code = ranks[0].wait()
    for other in ranks[1:]:
        try:
            other.wait(10)
        except subprocess.TimeoutExpired:
            other.kill()
    return code

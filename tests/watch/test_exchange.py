"""Nodes that hear of each other: who speaks, what comes through, and what happens when nobody answers."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whichrank.watch import council, exchange, states
from whichrank.watch.exchange import Exchange
from whichrank.watch.folder import Folder
from whichrank.watch.heads import Heard
from whichrank.watch.states import Ended, NodeStall, NodeState, RankState
from whichrank.watch.store import Store, room


class Board:
    """What all nodes of a test share. `down`: nobody gets an answer."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.counts: dict[str, int] = {}
        self.lock = threading.Lock()
        self.down = False

    def connect(self) -> Board:
        return self

    def _up(self) -> None:
        if self.down:
            raise TimeoutError

    def add(self, key: str, more: int) -> int:
        self._up()
        with self.lock:
            self.counts[key] = self.counts.get(key, 0) + more
            return self.counts[key]

    def set(self, key: str, data: bytes) -> None:
        self._up()
        self.values[key] = data

    def claim(self, key: str, data: bytes) -> bytes:
        self._up()
        with self.lock:
            return self.values.setdefault(key, data)

    def get(self, keys: Sequence[str]) -> dict[str, bytes]:
        self._up()
        return {key: self.values[key] for key in keys if key in self.values}

    def close(self) -> None:
        pass


def rank(number: int, **more: object) -> RankState:
    known = {"pid": 100 + number, "local_rank": 0, "step": 9, "phase": "collective", "since": 1000.0, "waits": True}
    return RankState(number, **{**known, **more})  # type: ignore[arg-type]


def at_work(number: int, **more: object) -> RankState:
    return rank(number, **{"phase": "data", "waits": False, **more})


ALL_WAIT = NodeStall((0,), "collective", 1000.0, 9, (0,), True)


def word(number: int, *ranks: RankState, stall: NodeStall | None = None, **more: object) -> Heard:
    return Heard(number, NodeState(f"n{number}", 1010.0, ranks=ranks, stall=stall, **more))  # type: ignore[arg-type]


def eventually(true: Callable[[], object], seconds: float = 10.0) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if true():
            return True
        time.sleep(0.02)
    return False


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Exchange]]:
    """Makes nodes that are quick, and ends them."""
    monkeypatch.setattr(exchange, "EVERY", 0.05)
    monkeypatch.setattr(exchange, "QUICK", 0.05)
    monkeypatch.setattr(exchange, "PULSE", 0.1)
    monkeypatch.setattr(exchange, "LOST", 0.8)
    monkeypatch.setattr(exchange, "DEAF", 0.8)
    made: list[Exchange] = []

    def make(
        board: Board, first: bool = False, proof: bytes = b"", changed: Callable[[], None] = lambda: None
    ) -> Exchange:
        one = Exchange(f"n{len(made)}", board.connect, first, lambda question: one.give(proof, question), changed)
        one.tell(NodeState(one.host, time.time(), ranks=(rank(len(made)),)))
        made.append(one)
        one.start()
        return one

    yield make
    for one in made:
        one.close()


def test_all_answer_the_one_that_speaks_and_send_what_it_wants(nodes: Callable[..., Exchange]) -> None:
    board, told = Board(), threading.Event()
    speaker = nodes(board, first=True, changed=told.set)
    others = [nodes(board, proof=f"evidence {number}".encode()) for number in range(3)]
    assert eventually(lambda: all(one.head is not None and one.led() for one in others))
    others[1].news(NodeState("n2", time.time(), ranks=(at_work(2),), stall=NodeStall((2,), "data", 1.0, 9, (), False)))
    assert told.wait(5)
    heard = {one.number: one.state for one in speaker.ask(5, [others[1].number or 0])}
    assert len(heard) == 3 and all(speaker.answered(number) for number in heard)
    assert heard[others[1].number].stall is not None  # type: ignore[index]
    assert list(speaker.proof.values()) == [b"evidence 1"]
    assert not others[1].untold
    assert [one.speaking for one in (speaker, *others)] == [True, False, False, False]


def test_a_node_that_does_not_answer_is_not_waited_for_longer_than_asked(nodes: Callable[..., Exchange]) -> None:
    board = Board()
    speaker, other = nodes(board, first=True), nodes(board)
    assert eventually(lambda: other.head is not None)
    other.close()
    time.sleep(0.3)
    began = time.monotonic()
    speaker.ask(1.0)
    assert 0.9 < time.monotonic() - began < 3 and not speaker.answered(other.number or 0)


def test_one_takes_the_place_of_a_speaker_that_is_gone(nodes: Callable[..., Exchange]) -> None:
    board = Board()
    speaker = nodes(board, first=True)
    others = [nodes(board) for _ in range(4)]
    assert eventually(lambda: all(one.led() for one in others))
    speaker.close()
    assert eventually(lambda: all(one.lost() for one in others))
    for one in others:
        one.take_over()
    assert eventually(lambda: any(one.speaking for one in others))
    new = next(one for one in others if one.speaking)
    assert eventually(lambda: all(one is new or (one.head and one.head.speaker == new.number) for one in others))
    assert sum(one.speaking for one in others) == 1
    # What was thought to be gone comes back, and finds that another speaks.
    back = Exchange("n0", board.connect, True, lambda _: None, lambda: None)
    back.start()
    assert eventually(lambda: back.led()) and not back.speaking
    back.close()


def test_a_store_that_gives_no_answer(nodes: Callable[..., Exchange]) -> None:
    board = Board()
    speaker, other = nodes(board, first=True), nodes(board)
    assert eventually(lambda: other.led())
    board.down = True
    assert eventually(lambda: not other.reachable() and not speaker.reachable())
    assert not other.led()
    other.news(other.state)
    began = time.monotonic()
    assert [one.number for one in speaker.ask(10)] in ([], [other.number])
    assert time.monotonic() - began < 8 and other.untold
    board.down = False
    assert eventually(lambda: other.led() and not other.untold)


def test_nodes_without_room_look_seldom(nodes: Callable[..., Exchange]) -> None:
    board = Board()
    closed: list[int] = []
    board.close = lambda: closed.append(1)  # type: ignore[method-assign]
    speaker = nodes(board, first=True)
    assert eventually(lambda: speaker.speaking)
    speaker.room = 1
    with speaker.lock:
        assert speaker.head is not None
        speaker.head = type(speaker.head)(speaker.head.speaker, speaker.head.host, room=1)
    assert eventually(lambda: board.values.get("head", b"") != b"")
    time.sleep(0.3)
    other = nodes(board)
    assert eventually(lambda: closed)
    assert other._pause() == exchange.SELDOM and other.led()


# ---- what all of it says


def test_one_that_is_certain_counts_and_whoever_waits_is_added() -> None:
    stuck = word(1, at_work(2, over=True), rank(3), stall=NodeStall((2,), "data", 999.0, 9, (3,), False))
    judged = council.judge([word(0, rank(0), rank(1), stall=ALL_WAIT), stuck])
    assert judged.stall is not None
    assert (judged.stall.ranks, judged.stall.waiting, judged.hosts) == ((2,), (0, 1, 3), ("n1",))


def test_nobody_is_told_while_another_node_is_at_work_within_its_past() -> None:
    heard = [word(0, rank(0), stall=ALL_WAIT), word(1, at_work(1))]
    assert council.judge(heard).stall is None
    heard[1] = word(1, at_work(1, over=True))
    found = council.judge(heard).stall
    assert found is not None and (found.ranks, found.all_wait) == ((1,), False)


def test_all_wait_only_where_all_do() -> None:
    heard = [word(0, rank(0), stall=ALL_WAIT), word(1, rank(1, since=1003.0))]
    found = council.judge(heard).stall
    assert found is not None and (found.ranks, found.all_wait, found.since) == ((0, 1), True, 1003.0)


def test_a_node_that_is_silent_is_named_and_its_last_word_not_believed() -> None:
    heard = [word(0, rank(0), stall=ALL_WAIT), word(1, at_work(1))]
    judged = council.judge(heard, silent=[1])
    assert judged.silent == ("n1",) and judged.stall is not None and judged.stall.ranks == (0,)


def test_without_a_stall_there_is_nothing_to_tell() -> None:
    assert council.judge([word(0, rank(0)), word(1, rank(1))]).stall is None
    assert council.judge([word(0, stall=ALL_WAIT, over=True)]).stall is None


def test_evidence_is_wanted_of_those_that_matter_most() -> None:
    heard = [word(number, rank(number)) for number in range(40)]
    heard[30] = word(30, at_work(30, over=True))
    heard[20] = word(20, ended=(Ended(20, 5, 1000.0),))
    heard[35] = word(35, rank(35, seq=3))
    wanted = council.wanted(heard)
    assert wanted[:3] == (30, 20, 35) and len(wanted) == exchange.WANTED


# ---- what is sent

TEXTS = st.text(max_size=30)
NUMBERS = st.integers(0, 1 << 40)
RANKS = st.builds(
    RankState, NUMBERS, NUMBERS, st.none() | NUMBERS, NUMBERS, TEXTS, st.floats(0, 1e10), st.none() | TEXTS,
    st.none() | TEXTS, st.none() | NUMBERS, st.booleans(), st.booleans(), st.booleans(),
)  # fmt: skip


@given(st.lists(RANKS, max_size=20), st.floats(-1e5, 1e5))
def test_what_a_node_tells_comes_through(ranks: list[RankState], off: float) -> None:
    state = NodeState("n", 1e9, ranks=tuple(ranks))
    assert states.unpacked(states.packed(state)) == state
    assert [one.step for one in state.moved(off).ranks] == [one.step for one in ranks]


def test_it_is_bounded() -> None:
    noise = "".join(chr(0x4E00 + (number * number * 7919) % 20000) for number in range(states.TEXT))
    ended = tuple(Ended(number, number, 1.0, raised=noise[number:] + noise[:number]) for number in range(256))
    state = NodeState("n", 1.0, ranks=tuple(rank(number) for number in range(256)), ended=ended)
    data = states.packed(state)
    found = states.unpacked(data)
    assert len(data) <= states.MOST and found is not None and len(found.ranks) == 256 and len(found.ended) == 256


@given(st.binary(max_size=300))
def test_what_is_none_is_not_believed(data: bytes) -> None:
    assert states.unpacked(data) is None


# ---- ways


def test_a_server_that_never_answers_is_left_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        began = time.monotonic()
        with pytest.raises(OSError):
            Store("127.0.0.1", server.getsockname()[1], "/x/", seconds=0.5)
        assert time.monotonic() - began < 3


def test_a_server_that_speaks_otherwise_is_left() -> None:
    def answer() -> None:
        with server.accept()[0] as other:
            other.recv(100)
            other.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=answer, daemon=True).start()
        with pytest.raises(OSError, match="protocol"):
            Store("127.0.0.1", server.getsockname()[1], "/x/")


def test_room_is_counted_where_the_server_can_be_seen() -> None:
    import os
    import resource

    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        found = room(port, [os.getpid()], 8)
        assert found is not None and 0 < found < limit
        assert room(port, [os.getpid()], limit) == 0
    assert room(port, [os.getpid()], 8) == 256


def test_a_folder_gives_each_node_a_number_of_its_own(tmp_path: Path) -> None:
    numbers: list[int] = []

    def join() -> None:
        one = Folder(str(tmp_path / "a"), seconds=20)
        numbers.extend(one.add("count", 1) for _ in range(5))
        one.close()

    threads = [threading.Thread(target=join) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(numbers) == list(range(1, 21))


def test_a_folder_keeps_words_claims_and_runs_apart(tmp_path: Path) -> None:
    one, other = (Folder(str(tmp_path / "a"), seconds=20) for _ in range(2))
    one.set("node/0", b"\0\xff")
    assert other.get(["node/0", "node/1"]) == {"node/0": b"\0\xff"}
    assert (one.claim("speaker/0", b"0"), other.claim("speaker/0", b"1")) == (b"0", b"0")
    one.set("over", b"1")
    later = Folder(str(tmp_path / "a"), seconds=20)
    assert later.get(["node/0"]) == {} and later.claim("speaker/0", b"5") == b"5"
    later.child.kill()
    with pytest.raises(OSError):
        later.add("count", 1)
    for each in (one, other, later):
        each.close()


def test_a_folder_that_does_not_answer_is_left_in_time(tmp_path: Path) -> None:
    import os
    import signal

    one = Folder(str(tmp_path / "a"), seconds=20)
    one.add("count", 1)
    os.kill(one.child.pid, signal.SIGSTOP)
    one.seconds = 0.5
    began = time.monotonic()
    with pytest.raises(OSError, match="no answer"):
        one.add("count", 1)
    one.close()
    assert time.monotonic() - began < 3 and eventually(lambda: one.child.poll() is not None)

"""Pickles are programs: nothing in them runs, and none takes more memory or time than its size explains."""

from __future__ import annotations

import os
import pickle
import struct
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import rings
from hypothesis import given
from hypothesis import strategies as st

from whichrank.evidence.unpickle import Refused, unpickle

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=20,
)


class Runs:
    def __reduce__(self) -> Any:
        return os.system, ("touch /tmp/whichrank-was-here",)


@given(PLAIN, st.integers(0, pickle.HIGHEST_PROTOCOL))
def test_plain_data_is_read(data: Any, protocol: int) -> None:
    assert unpickle(pickle.dumps(data, protocol)) == data


GLOBAL = b"\x80\x02cos\nsystem\nX\x02\x00\x00\x00id\x85R."
HOSTILE = {
    "global": GLOBAL,
    "stack_global": b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x02id\x85R.",
    "inst": b"\x80\x02(X\x02\x00\x00\x00idios\nsystem\n.",
    "obj": b"\x80\x02(cos\nsystem\nX\x02\x00\x00\x00ido.",
    "extension": b"\x80\x02\x82\x01.",
    "builtin": b"\x80\x02cbuiltins\neval\nX\x01\x00\x00\x001\x85R.",
    "dotted": b"\x80\x04\x8c\x08builtins\x8c\x0egetattr.__call\x93.",
    "persistent": b"\x80\x02Pid\n.",
    "persistent, binary": b"\x80\x02X\x01\x00\x00\x00aQ.",
    "reduce": pickle.dumps(Runs(), protocol=2),
    "reduce of plain data": b"\x80\x02](\x85R.",
    "build": b"\x80\x02]}X\x01\x00\x00\x00aK\x01sb.",
    "huge memo index": b"\x80\x02]r" + struct.pack("<I", 2**32 - 2) + b".",
    "huge text": b"\x80\x04\x8d" + struct.pack("<Q", 2**62) + b"abc.",
    "huge bytes": b"\x80\x04\x8e" + struct.pack("<Q", 2**40) + b"abc.",
    "huge text, 32 bits": b"\x80\x02X" + struct.pack("<I", 2**32 - 1) + b"abc.",
    "huge number": b"\x80\x02\x8b" + struct.pack("<i", 2**31 - 1) + b"\1.",
    "negative length": b"\x80\x02\x8b" + struct.pack("<i", -5) + b"\1.",
    "huge frame": b"\x80\x04\x95" + struct.pack("<Q", 2**60) + b"N.",
    "no stop": b"\x80\x02]]]]",
    "empty stack": b"\x80\x02.",
    "unknown protocol": b"\x80\xff.",
    "unknown opcode": b"\x80\x02\xfe.",
    "no such memo": b"\x80\x02h\x07.",
    "unhashable key": b"\x80\x02}]K\x01s.",
    "nothing": b"",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_refused_at_once_in_words(name: str) -> None:
    begin = time.monotonic()
    with pytest.raises(Refused, match=r"[a-z]{3}"):
        unpickle(HOSTILE[name])
    assert time.monotonic() - begin < 5


def number(value: int) -> bytes:
    data = value.to_bytes((value.bit_length() + 8) // 8, "little")
    return b"\x8a" + bytes([len(data)]) + data


def colliding(count: int) -> list[bytes]:
    """Numbers that Python hashes alike: multiples of 2^61 - 1."""
    return [number(n * (2**61 - 1)) for n in range(1, count)]


SLOW = {
    "numbers": b"\x80\x02}(" + b"".join(key + b"N" for key in colliding(60_000)) + b"u.",
    "numbers one by one": b"\x80\x02}" + b"".join(key + b"Ns" for key in colliding(60_000)) + b".",
    "numbers, made from a list": b"\x80\x02(" + b"".join(key + b"N" for key in colliding(60_000)) + b"d.",
    "numbers after a pair of texts": b"\x80\x02}(" + b"X\1\0\0\0aX\1\0\0\0b" + b"".join(key + b"N" for key in colliding(60_000)) + b"u.",
    "numbers out of the memo": b"\x80\x02](" + b"".join(key + b"r" + struct.pack("<I", at) for at, key in enumerate(colliding(60_000))) + b"e}(" + b"".join(b"j" + struct.pack("<I", at) + b"N" for at in range(59_999)) + b"u\x86.",
    "a set": b"\x80\x04\x8f(" + b"".join(colliding(60_000)) + b"\x90.",
    "a frozen set": b"\x80\x04(" + b"".join(colliding(60_000)) + b"\x91.",
    "tuples": b"\x80\x02}(" + b"".join(key + b"\x85N" for key in colliding(60_000)) + b"u.",
    "a tuple of itself twice": b"\x80\x02})q\0" + b"h\0h\0\x86q\0" * 200 + b"Ns.",
    "the same, and a trick with the stack": b"\x80\x02})q\0" + b"h\0h\0\x86q\0" * 200 + b"0h\0Ns.",
    "the same, numbered by itself": b"\x80\x04})\x94" + b"".join(b"h%ch%c\x86\x94" % (at, at) for at in range(200)) + b"Ns.",
    "a tuple nested too deep to be hashed": b"\x80\x02})" + b"\x85" * 1_000_000 + b"Ns.",
    "a number of the memo written oddly": b"\x80\x02})p0x0\n.",
}  # fmt: skip


@pytest.mark.parametrize("name", SLOW)
def test_keys_that_would_keep_a_dictionary_busy_are_refused(name: str) -> None:
    begin = time.monotonic()
    with pytest.raises(Refused, match="opened"):
        unpickle(SLOW[name])
    assert time.monotonic() - begin < 5


@pytest.mark.parametrize("protocol", [2, 4])
def test_tuples_behind_calls_are_followed(protocol: int) -> None:
    """Calls are passed over in one step: a tuple that each of them doubles must be seen all the same."""
    put = {2: lambda at: b"r" + struct.pack("<I", at), 4: lambda at: b"\x94"}[protocol]
    get = lambda at: b"j" + struct.pack("<I", at)  # noqa: E731
    head = b"\x80%c](X\4\0\0\0name" % protocol + put(0) + b"X\1\0\0\0a" + put(1)
    calls = [b"}(" + get(0) + get(at) + get(at) + b"\x86" + put(at + 1) + b"u" for at in range(1, 200)]
    bomb = head + b"".join(calls) + b"}(" + get(200) + b"Nu" + b"e."
    with pytest.raises(Refused, match="opened"):
        unpickle(bomb)


@given(PLAIN, st.integers(2, pickle.HIGHEST_PROTOCOL), st.integers(1, 300))
def test_dumps_of_any_protocol_are_read(data: Any, protocol: int, calls: int) -> None:
    content = rings.content(1, calls=calls + 2)
    content["entries"][0]["more"] = data
    assert unpickle(pickle.dumps(content, protocol)) == content


def test_what_a_pickle_asked_for_is_said_without_what_it_could_do_to_a_terminal() -> None:
    with pytest.raises(Refused, match=r"os\.system"):
        unpickle(GLOBAL)
    with pytest.raises(Refused) as refused:
        unpickle(b"\x80\x02cos\x1b[31m\nsys\x07tem\n.")
    assert str(refused.value).isprintable()


def test_nothing_has_run() -> None:
    with pytest.raises(Refused):
        unpickle(pickle.dumps([1, Runs()]))
    assert not Path("/tmp/whichrank-was-here").exists()


@pytest.mark.parametrize("depth", [1000, 300_000])
def test_depth(depth: int) -> None:
    """Nested beyond recursion: read or refused, never a crash of the interpreter."""
    try:
        unpickle(b"\x80\x02" + b"](" * depth + b"e" * depth + b".")
    except Refused:
        pass


def test_a_list_that_doubles_itself_takes_no_more_memory_than_it_has_places() -> None:
    """2^40 elements of 40 lists: they are the same lists, and nobody walks them."""
    found = unpickle(pickle.dumps(doubled(40), protocol=2))
    assert len(found) == 2 and found[0] is found[1]


def doubled(times: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(times):
        found = [found, found]
    return found


def doubled_tuple(times: int) -> tuple[Any, ...]:
    found: tuple[Any, ...] = ()
    for _ in range(times):
        found = (found, found)
    return found


@pytest.mark.parametrize("bomb", [doubled(40), doubled_tuple(40)], ids=["lists", "tuples"])
def test_such_a_list_in_a_dump_is_bounded_too(bomb: Any) -> None:
    """Where an entry should list shapes, it holds a list that doubles itself forty times."""
    from whichrank.evidence.flight_recorder import read
    from whichrank.facts import Gap, Source

    content = rings.content(1)
    for field in ("input_sizes", "input_dtypes", "process_group", "frames", "state", "seq_id"):
        entry = dict(content["entries"][0])
        entry[field] = bomb
        data = pickle.dumps({**content, "entries": [*content["entries"][1:], entry]}, protocol=2)
        begin = time.monotonic()
        found = list(read(data, Source("comm_lib_trace_rank_1")))
        assert found and time.monotonic() - begin < 20, field
        assert any(isinstance(item, Gap) or len(getattr(item, "seq", ())) for item in found)


@given(st.binary(max_size=300))
def test_random_bytes(data: bytes) -> None:
    try:
        unpickle(b"\x80\x02" + data)
    except Refused:
        pass


@given(st.integers(0, 10_000), st.binary(min_size=1, max_size=8))
def test_damaged_anywhere(at: int, junk: bytes) -> None:
    data = rings.dumped(1)
    at %= len(data)
    try:
        unpickle(data[:at] + junk + data[at + len(junk) :])
    except Refused:
        pass


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="limits of memory are Linux's")
def test_threads_leave_no_limit_behind() -> None:
    """Workers of a cluster read in threads: the limit of one must not become the other's usual one."""
    import resource

    before = resource.getrlimit(resource.RLIMIT_AS)
    data = rings.dumped(1, calls=400)
    threads = [threading.Thread(target=lambda: [unpickle(data) for _ in range(20)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert resource.getrlimit(resource.RLIMIT_AS) == before

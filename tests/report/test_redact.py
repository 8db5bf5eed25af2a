"""A redacted report holds nothing that the evidence calls its own, and answers what the report answered."""

from __future__ import annotations

import gzip
import ipaddress
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import jsonschema
import pytest
import samples
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import whichrank
from whichrank.__main__ import run
from whichrank.causes import CAUSES, Cause
from whichrank.diagnosis import report_on
from whichrank.evidence import Evidence, read_piece
from whichrank.job.common_words import is_common
from whichrank.model import Missing, Report
from whichrank.report import json_report, markdown, terminal
from whichrank.report.redact import redact
from whichrank.report.redact_text import Redactor

ROOT = Path(__file__).parents[2]
CASES = sorted(path.parent for path in (ROOT / "tests/cases").glob("*/*/truth.json"))
VALIDATOR = jsonschema.Draft202012Validator(json_report.schema())

# --- what is private in a case, found here without whichrank

# The system's, the usual images', and those where PyTorch's own wheels are built.
PUBLIC_ROOTS = re.compile(
    r"/(?:usr|lib|lib64|bin|sbin|etc|proc|sys|dev|run|boot|var/log|tmp|opt/conda|opt/venv|opt/env|opt/py|opt/torch\d*|opt/v|opt/e|__w/pytorch|pytorch/(?:torch|third_party))(?:/|$)"
)
HOSTS = (
    r"(?m)^(?:\[[^\]]*\] ?)*([A-Za-z][\w.-]*):\d+:\d+ \[\d+\] .*NCCL",
    r"srun: error: ([A-Za-z][\w.-]*):",
    r"\bON ([A-Za-z][\w.-]*) CANCELLED",
    r"\bNodeName=([\w.-]+)",
    r"(?m)^\s*host\s+: ([A-Za-z][\w.-]+)\s*$",
    r"(?m)^[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d ([A-Za-z][\w.-]+) kernel:",
    r"\bnfs: server ([A-Za-z][\w.-]+) ",
    r"\bon node ([A-Za-z][\w.-]*\d) exited",
    r"\bSuccessfully assigned \S+ to ([\w.-]+)",
    r"\bpod/([\w.-]+)",
)
USERS = (r"/(?:home|Users)/([A-Za-z][\w.-]*)", r"\bUserId=(\w+)\(")
# Words of our own pages: that one of them stands in a report tells nothing.
OURS = set(
    re.findall(r"[\w-]+", " ".join(page.read_text(encoding="utf-8").lower() for page in (ROOT / "docs").glob("*.md")))
)


def evidence_of(case: Path) -> Iterator[tuple[str, bytes]]:
    for path in sorted(case.rglob("*")):
        if path.is_file() and path.name not in ("truth.json", "gen.py"):
            data = path.read_bytes()
            if data[:2] == b"\x1f\x8b":
                try:
                    data = gzip.decompress(data)
                except (OSError, EOFError):
                    data = b""
            yield path.relative_to(case).as_posix(), data


def private_things(case: Path) -> set[str]:
    text = "\n".join(data.decode("utf-8", "replace") for _, data in evidence_of(case))
    text = re.sub(r"\x1b\[[\d;]*m", "", text)
    found = {host for pattern in HOSTS for host in re.findall(pattern, text)}
    truth = json.loads((case / "truth.json").read_text(encoding="utf-8"))
    found |= {host for host in [truth.get("culprit_host")] if host}
    found |= {user for pattern in USERS for user in re.findall(pattern, text)}
    found = {name.rstrip(".,") for name in found if len(name) > 1 and name.lower() not in OURS}
    for address in re.findall(r"(?<![\w.=-])\d{1,3}(?:\.\d{1,3}){3}(?![\w.]*\d)", text):
        try:
            if not (ip := ipaddress.ip_address(address)).is_loopback and int(ip):
                found.add(address)
        except ValueError:
            continue
    for path in re.findall(r"(?<![\w./:])/[A-Za-z_][\w.-]*(?:/[\w.-]+)+", text):
        if not PUBLIC_ROOTS.match(path):
            found.add(path.rstrip("."))
            found.add(path.partition("/lib/python3")[0] if "/lib/python3" in path else path)
    return {thing for thing in found if len(thing) > 1}


def pages(report: Report) -> Iterator[tuple[str, str]]:
    yield "json", json_report.render(report).decode()
    yield "markdown", markdown.render(report, all=True)
    yield "short markdown", markdown.render(report)
    yield "terminal", terminal.plain(report, 400, all=True)
    yield "narrow terminal", terminal.plain(report, 80)


def holds(page: str, thing: str) -> bool:
    return re.search(rf"(?<![\w-]){re.escape(thing)}(?![\w-])", page, re.I) is not None


@pytest.mark.many
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.parent.name}-{case.name}")
def test_nothing_private_is_left(case: Path) -> None:
    evidence = Evidence()
    for name, data in evidence_of(case):
        read_piece(f"{case.name}/{name}", data, evidence)
    report = report_on(evidence)
    hidden = redact(report)

    private = private_things(case)
    for form, page in pages(hidden):
        assert not [thing for thing in private if holds(page, thing)], form
    VALIDATOR.validate(json.loads(json_report.render(hidden)))
    was, now = report.verdicts[0], hidden.verdicts[0]
    for part in ("cause", "grade", "confidence", "mechanism", "rank_grade", "rank_confidence", "victims", "seq", "op"):
        assert getattr(now, part) == getattr(was, part)
    assert [culprit.rank for culprit in now.culprits] == [culprit.rank for culprit in was.culprits]
    assert len(set(now.hosts)) == len(set(was.hosts))
    assert [(row.rank, row.state, row.seq, row.since) for row in hidden.ranks] == [
        (row.rank, row.state, row.seq, row.since) for row in report.ranks
    ]


# --- one kind at a time


def shown(*texts: str, names: tuple[tuple[str, str], ...] = ()) -> list[str]:
    """Texts as a report would show them, redacted together."""
    report = Report(verdicts=(), gaps=tuple(Missing(what=text, why="") for text in texts), names=names)
    return [gap.what for gap in redact(report).gaps]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("export WANDB_API_KEY=0123456789abcdef0123456789abcdef01234567", "export WANDB_API_KEY=secret-1"),
        ("AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "AWS_SECRET_ACCESS_KEY=secret-1"),
        ("aws id AKIAIOSFODNN7EXAMPLE here", "aws id secret-1 here"),
        ("login(token='hf_aBcDeFgHiJkLmNoPqRsTuVwXyZ012345')", "login(token='secret-1')"),
        ("Authorization: Bearer abc.def-123456", "Authorization: Bearer secret-1"),
        ("db password=hunter2 retry", "db password=secret-1 retry"),
        ("tokens: 4096, token 17 of 99", "tokens: 4096, token 17 of 99"),
        ("git clone https://jo:pw@git.acme.example/llm.git", "git clone https://url-1"),
        ("saved s3://acme-lm/run7/ckpt.pt in 3 s", "saved s3://url-1 in 3 s"),
        ("see https://pytorch.org/docs/stable/elastic/errors.html", "see https://pytorch.org/docs/stable/elastic/errors.html"),
        ("mail to jane.doe@acme.example now", "mail to email-1 now"),
        ("user@1000.service: A process of this unit", "user@1000.service: A process of this unit"),
        ("GPU-7c1f2a90-1111-2222-3333-abcdefabcdef lost", "gpu-uuid-1 lost"),
        ("Serial Number : 1652122012345", "Serial Number : serial-1"),
        ("link/ether 0c:42:a1:8f:00:3e brd", "link/ether mac-1 brd"),
        ("Port GUID: 0x0c42a103008f003e", "Port guid-1"),
        ("commId 0xca75c98c070e44a5 - Init START", "commId 0xca75c98c070e44a5 - Init START"),
        ("connect to [fd00:1148::22]:29500, not ::1", "connect to [ip-1]:29500, not ::1"),
        ("::ffff:10.9.1.7 and 10.9.1.7 and 127.0.0.1", "::ffff:ip-1 and ip-1 and 127.0.0.1"),
        ("std::vector c10::Error at::cuda::blas c10d::ddp", "std::vector c10::Error at::cuda::blas c10d::ddp"),
        ("driver 535.104.12.05, cudnn==8.9.2.26, step 05:12:44.1", "driver 535.104.12.05, cudnn==8.9.2.26, step 05:12:44.1"),
        ("Xid (PCI:0000:ba:00): 79, GPU 0000:81:00.0", "Xid (PCI:0000:ba:00): 79, GPU 0000:81:00.0"),
        ("/home/jkent/kestrel/train.py:266", "/home/user-1/dir-1/train.py:266"),
        ("torch/utils/data/dataloader.py:1251", "torch/utils/data/dataloader.py:1251"),
        ("critic/score/mean:0.1 tok/s it/s 3/8", "critic/score/mean:0.1 tok/s it/s 3/8"),
        ("uploading out/kestrel-xl to the hub", "uploading out/dir-1 to the hub"),
        ("--job-name=kestrel-7b --account=lab12", "--job-name=job-1 --account=job-2"),
        ("UserId=jkent(1204) GroupId=users(100)", "UserId=user-1(1204) GroupId=users(100)"),
        (r"opened C:\Users\jkent\run.log", "opened path-1"),
        ("771177|yeti|melvyn|64|OUT_OF_MEMORY|0:125|gn-05", "job-3|job-1|job-2|64|OUT_OF_MEMORY|0:125|host-1"),
        ("771177_3.batch|batch||gpu|CANCELLED by 1000|0:0", "job-1_3.batch|batch||gpu|CANCELLED by 1000|0:0"),
        ("41000|adamw|gn|2.31|", "41000|adamw|gn|2.31|"),
        ("shmem-rss:0kB, UID:31337 pgtables:480kB", "shmem-rss:0kB, UID:user-1 pgtables:480kB"),
        ("Killed process 4242, UID 31337, (python)", "Killed process 4242, UID user-1, (python)"),
        ("task=python,pid=4242,uid=31337", "task=python,pid=4242,uid=user-1"),
        ("/sys/fs/cgroup/user.slice/user-31337.slice", "/sys/fs/cgroup/user.slice/user-1.slice"),
        ("UID:0 and uid=65534", "UID:0 and uid=65534"),
    ],
)  # fmt: skip
def test_what_goes_and_what_stays(text: str, expected: str) -> None:
    assert shown(text) == [expected]


def test_the_same_thing_has_one_alias_in_all_spellings() -> None:
    names = (("host", "gn-05.hpc.acme"), ("host", "gn-12"))
    texts = shown(
        "gn-05:71:95 [3] NCCL INFO x", "ssh gn-05.hpc.acme dmesg", "GN-05 and gn_12", "gn-[05,12]", "gn-13", names=names
    )
    assert texts == [
        "host-1:71:95 [3] NCCL INFO x",
        "ssh host-1.domain-1 dmesg",
        "host-1 and host-2",
        "host-[1-2]",
        "host-3",
    ]


def test_hosts_are_numbered_as_their_ranks_run() -> None:
    report = samples.oom()
    ranks = {row.rank: row.host for row in redact(report).ranks}
    assert (ranks[0], ranks[8], ranks[63]) == ("host-1", "host-2", "host-8")
    assert redact(report).verdicts[0].checks[0].command.count("host-3")


def test_a_name_that_one_line_tells_is_known_in_all() -> None:
    texts = shown("cwd /home/jkent/x", "jkent 41203 98.0 1.2 81 92 ? Rl 05:12 python", "worker of jkent died")
    assert texts[1:] == ["user-1 41203 98.0 1.2 81 92 ? Rl 05:12 python", "worker of user-1 died"]


def test_numbers_are_jobs_only_where_jobs_stand() -> None:
    texts = shown(
        "slurm-30802.out:4", "JOB 30802 ON c1 CANCELLED", "NumelIn=30802, step 30802", names=(("job", "30802"),)
    )
    assert texts == ["slurm-job-1.out:4", "JOB job-1 ON host-1 CANCELLED", "NumelIn=30802, step 30802"]


def test_a_name_that_was_cut_off_is_a_name() -> None:
    line = "last line: 2026-10-14 02:14:32 INFO connecting the last ranks to sequ"
    assert "sequ" not in shown(line, names=(("host", "sequoia-0417"),))[0]


@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: cause.id)
def test_our_own_texts_stay(cause: Cause) -> None:
    texts = [cause.means, cause.looks_like, *cause.fix, cause.stopgap, cause.dont]
    texts += [text for check in cause.settles for text in (check.says, check.command)]
    texts = [re.sub(r"\{(\w+)\}", lambda match: match[1].upper(), text) for text in texts if text]
    assert shown(*texts) == texts


def test_messages_of_torch_and_nccl_stay() -> None:
    """Every line that a reader's docstring shows keeps its words, apart from its names."""
    from whichrank.report.explain import explain

    line = samples.WATCHDOG.format(rank=3)
    assert shown(line) == [line]
    assert explain(shown(line)[0])[0].title == explain(line)[0].title


def test_it_says_so_and_says_it_once() -> None:
    hidden = redact(samples.oom())
    assert hidden.redacted and len(hidden.footnotes) == 2
    assert redact(hidden) == hidden
    assert terminal.plain(hidden, 80).rstrip().endswith("any other word.")
    assert "Redacted" in markdown.render(hidden) and json.loads(json_report.render(hidden))["redacted"] is True
    assert not samples.oom().redacted and "Redacted" not in terminal.plain(samples.oom(), 80)


def test_library_and_schema() -> None:
    for make in samples.SAMPLES:
        VALIDATOR.validate(json.loads(json_report.render(whichrank.redact(getattr(samples, make)()))))
    assert "names" not in json.loads(json_report.render(samples.oom()))


def test_extra_fields_and_odd_names_are_redacted_too() -> None:
    report = replace(
        samples.oom(),
        extra={"cluster": {"head": "node-03", "path": ["/home/jkent/x"]}},
        gaps=(Missing("my secret run.log", "empty", command="ls -l 'my secret run.log'"),),
        names=(("file", "my secret run.log"),),
    )
    hidden = redact(report)
    assert hidden.extra["cluster"]["head"] == "host-3" and "jkent" not in str(hidden.extra)
    assert "secret run" not in str(hidden.gaps)


LETTERS = st.text("abcdefghijklmnopqrstuvwxyz", min_size=5, max_size=9)


@given(LETTERS, LETTERS, st.integers(0, 9999), st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_any_host_and_user_go_wherever_they_stand(user: str, host: str, number: int, random: Random) -> None:
    """Names of any letters, in lines in any order: nothing of them is left, and nothing else changes."""
    assume(not is_common(user) and not is_common(host) and user not in host and host not in user)
    name = f"{host}-{number:04d}"
    lines = [
        f"{name}:41203:41388 [1] NCCL INFO ncclCommInitRank comm 0x55d0c1f0 rank 17 nranks 64",
        f'File "/home/{user}/x/train.py", line 3',
        f"ssh {user}@{name} 'nvidia-smi'",
        f"the kernel of {name.upper()} killed a process of {user}",
        f"logs/{name}/rank3.log",
    ]
    random.shuffle(lines)
    page = "\n".join(shown(*lines)).lower()
    assert user not in page and host not in page
    assert "nccl info ncclcomminitrank comm 0x55d0c1f0 rank 17 nranks 64" in page and "rank3.log" in page


@given(st.text(max_size=300))
@settings(max_examples=150, deadline=None)
def test_no_text_breaks_it(text: str) -> None:
    assert len(shown(text, f"on node {text}", f"/home/{text}")) == 3


def test_long_texts_are_no_trap() -> None:
    """Time grows with the length of a text, whatever stands in it."""
    for piece in ("a-", "1.", "0:", "/a", "a.", "x@", "_0", "a1[", "--a=", "a/b.", "Az0"):
        Redactor([]).text(piece * 2000)


def test_command_line(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    log = tmp_path / "jkent" / "node-77.log"
    log.parent.mkdir()
    log.write_text("node-77:41:42 [0] NCCL INFO x\n" + samples.WATCHDOG.format(rank=0) + "\n")
    for form in ([], ["--json"], ["--markdown"]):
        assert run([str(log), "--redact", *form]) == 1
        out, err = capfdbinary.readouterr()
        assert b"jkent" not in out + err and b"node-77" not in out + err and b"Redacted" in out

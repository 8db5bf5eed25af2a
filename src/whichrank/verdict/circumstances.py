"""The circumstances of an incident, for comparing it with others: when, on which nodes, at which step, reading what.

Nothing of it bears on the verdict. What was read comes from the culprit's own words: its traceback, its last lines,
the lines that prove the verdict.

>>> what_was_read("reading shard /mnt/corp/tok/shard_0119.bin")
('shard_0119.bin', 0, None)
>>> what_was_read("RuntimeError: bad crc in sample 48211 of train-00417-of-02048.tar")
('train-00417-of-02048.tar', 2048, 'sample 48211')
>>> what_was_read("loading shard 12/400"), what_was_read("saved /ckpt/step_100/model-00001-of-00004.safetensors")
(('shard 12', 400, None), None)
>>> step_of("step=4217 loss=2.31"), step_of("it 20 of 80"), step_of("steps per epoch 100")
(4217, 20, None)
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePosixPath

from whichrank.evidence.exception_part import is_library
from whichrank.facts import Fact
from whichrank.findings import Findings
from whichrank.job.clocks import DAY, iso
from whichrank.job.model import Job, when
from whichrank.model import Circumstances, Verdict

LAST = 8  # lines of the culprit that may still tell what it was at
LONGEST = 2000  # characters of a line that are looked at
_FILE = re.compile(
    r"(?P<name>[\w.%+=@-]{1,120}\.(?:tar|parquet|arrow|jsonl?|ndjson|mds|tfrecords?|npy|npz|zip|csv|tsv|zarr|h5|hdf5|bin|idx|"
    r"msgpack|avro|lance|beton|lmdb|mp4|mkv|webm|avi|flac|wav|mp3|ogg|opus|jpe?g|png|webp|tiff?|nii|dcm|las|pcd)"
    r"(?:\.(?:gz|zst|bz2|xz|lz4))?)(?![\w.]*\w)"
)
_NO_DATA = re.compile(
    r"^(?:.*(?:model|optim|checkpoint|ckpt|weights|state|adapter|config|tokenizer|vocab|params|args|stderr|stdout|metrics|trace|"
    r"package|requirements|tmp\w{6,}|rng)[\w-]*[.-]?.*)$",
    re.I,
)
_SHARD = re.compile(r"\bshards?[ _#:=\[(-]{1,3}0*(?P<number>\d{1,9})(?:\s*(?:/|of|-of-)\s*0*(?P<of>\d{1,9}))?", re.I)
_OF = re.compile(r"-of-0*(\d{1,9})")
_SAMPLE = re.compile(
    r"\b(?P<kind>sample|example|record|document|doc|utterance|utt|clip|video|image|conversation|prompt|row|sequence)"
    r"(?:[ _-]?(?:id|idx|index|key|number|no|num))?(?:['\"]?\s?[=:#]\s?|\s|['\"]\s)['\"]?(?P<id>(?=[\w./:-]*\d)[\w./:-]{1,80})",
    re.I,
)
_COUNT = re.compile(r"\d+(?:/\d+|s|k|ms|x)$|\d{1,2}$|\d+\.\d+$|.*:$", re.I)
_STEP = re.compile(
    r"\b(?:global[ _-]?steps?|step|iteration|iter|it|update|batch)(?:['\"]?\s?[=:#]\s?|\s|\s?\[\s?|\s#)0*(?P<step>\d{1,12})(?![\d.]*(?:it/s|s/it|ms|\.\d))",
    re.I,
)
_MOUNT = re.compile(
    r"(?<![\w.])(/(?:mnt|mount|nfs|lustre|gpfs|scratch|fsx|efs|data|datasets|shared|fs|weka|vast|ceph|work|home|projects?)(?:/[\w.-]+)?)(?=/|\b)"
)
_BUCKET = re.compile(r"\b((?:s3|gs|az|abfss?|hdfs|oss|cos|r2)://[\w.-]+)")


def circumstances(job: Job, found: Findings, verdict: Verdict) -> Circumstances:
    """What history keeps of this incident beside its verdict."""
    spans = [
        at
        for item in job.items()
        if item.spot.source.kind in ("training", "unknown") and (at := when(item)) and at > 2 * DAY
    ]
    guilty = [culprit.rank for culprit in verdict.culprits if culprit.rank is not None]
    lone = job.ranks.get(guilty[0]) if len(guilty) == 1 else None
    telling = list(_telling(job, found, verdict, guilty))
    shard, shards, sample = _read(telling)
    return Circumstances(
        began=iso(min(spans, default=None)),
        ended=iso(max(spans, default=None)),
        hosts=tuple(sorted(job.hosts)),
        step=_step(found, telling),
        from_step=_from_step(job, found),
        shard=shard,
        shards=shards,
        sample=sample,
        site=_site(found, guilty),
        gpu=lone.gpu if lone else None,
        local_rank=lone.local_rank if lone else None,
        service=_service(job, found, verdict),
    )


def _telling(job: Job, found: Findings, verdict: Verdict, guilty: Sequence[int]) -> Iterator[str]:
    """Texts that may say what the culprit was at, the best first."""
    for failure in found.failed.roots:
        if not guilty or failure.rank in guilty:
            yield str(failure.fact["message"] or "")
            yield failure.fact.spot.excerpt
    for rank in guilty[:8]:
        info = job.ranks.get(rank)
        for line in reversed(info.said[-LAST:] if info else ()):
            yield line.text
        for fact in reversed(info.facts if info else ()):
            if fact.kind in ("exception", "dl_timeout", "dl_worker_killed"):
                yield str(fact["message"] or "")
    for proof in verdict.because:
        yield proof.excerpt


def _read(texts: Iterable[str]) -> tuple[str | None, int, str | None]:
    """The first shard and the first sample that the texts name."""
    shard, shards, sample = None, 0, None
    for text in texts:
        if (read := what_was_read(text)) is None:
            continue
        if shard is None and read[0]:
            shard, shards = read[0], read[1]
        sample = sample or read[2]
        if shard and sample:
            break
    return shard, shards, sample


def what_was_read(text: str) -> tuple[str | None, int, str | None] | None:
    """(shard or file, how many of them there are or 0, sample) that a line names; None where it names none."""
    text = text[:LONGEST]
    shard, shards, sample = None, 0, None
    for match in _FILE.finditer(text):
        if not _NO_DATA.match(match["name"]):
            shard = PurePosixPath(match["name"]).name
            shards = int(of[1]) if (of := _OF.search(match["name"])) else 0
            break
    if shard is None and (numbered := _SHARD.search(text)):
        shard, shards = f"shard {numbered['number']}", int(numbered["of"] or 0)
    for match in _SAMPLE.finditer(text):
        if not _COUNT.match(match["id"]) and match["id"] != shard and not match["id"].startswith("/"):
            sample = f"{match['kind'].lower()} {match['id'].rstrip('.:,-/')}"
            break
    return (shard, shards, sample) if shard or sample else None


def step_of(text: str) -> int | None:
    """The training step that a line names."""
    match = _STEP.search(text[:LONGEST])
    return int(match["step"]) if match else None


def _step(found: Findings, telling: Sequence[str]) -> int | None:
    """Where it stopped: in the culprit's words, else the last step that most ranks printed."""
    for text in telling[: LAST + 4]:
        if (step := step_of(text)) is not None:
            return step
    last = Counter(step for beat in found.beats if (step := step_of(beat.last.text)) is not None)
    return max(last, key=lambda step: (last[step], step)) if last else None


def _from_step(job: Job, found: Findings) -> int | None:
    """The step at which it began or resumed, as far as the evidence goes back."""
    restored = [fact["step"] for fact in job.of("restored") if isinstance(fact["step"], int)]
    first = [step for beat in found.beats if (step := step_of(beat.first.text)) is not None]
    return max(restored) if restored else min(first, default=None)


def _site(found: Findings, guilty: Sequence[int]) -> str | None:
    """The culprit's own line of code: of its traceback, else of its stack."""
    for failure in found.failed.roots:
        if failure.fact["site"] and (not guilty or failure.rank in guilty):
            return _short(str(failure.fact["site"]))
    for stack in found.stacks.mains:
        if stack.rank in guilty and (own := _own(stack.fact)):
            return _short(own)
    return None


def _own(fact: Fact) -> str | None:
    """The innermost frame of a stack that is no library's: "func (file:line)"."""
    for frame in fact["frames"] or ():
        where = re.search(r"\(([^\s()]+:\d+)\)", str(frame))
        if (
            where
            and not is_library(str(frame))
            and "site-packages" not in where[1]
            and where[1].partition(":")[0].endswith(".py")
        ):
            return where[1]
    return None


def _short(site: str) -> str | None:
    match = re.search(r"([\w.-]+\.py):(\d+)", site)
    return f"{match[1]}:{match[2]}" if match else None


def _service(job: Job, found: Findings, verdict: Verdict) -> str | None:
    """The shared server, switch, mount or bucket that it waited for, where the verdict is about one."""
    if verdict.cause not in ("slow_storage", "shared_infrastructure", "slow_checkpoint", "slow_data"):
        return None
    for joined in found.storage:
        if joined.fact.kind == "storage_stall" and joined.fact["server"]:
            return str(joined.fact["server"])
    if verdict.cause == "shared_infrastructure" and (switches := job.of("switch_down")):
        return str(switches[0]["device"])
    for proof in verdict.because:
        for pattern in (_BUCKET, _MOUNT):
            if match := pattern.search(proof.excerpt[:LONGEST]):
                return match[1]
    return None

#!/usr/bin/env python3
"""Score `whichrank diagnose --json` on a folder of cases.

    score.py CASES [--command "whichrank diagnose --json"] [--jobs 2] [--json OUT] [--only ID]

A case is a folder with a truth.json and evidence files beside it. The command gets the evidence (a copy
in a folder of neutral name, every path in it but truth.json) and must print a report as JSON, as
docs/report.md defines it. The first verdict counts.

cause      the truth or one of `also_acceptable`
culprit    the set of ranks is exactly the truth's, or one of `culprit_ranks_also` (none named where the truth
           is null; where undecided is acceptable and answered, naming fewer is right too)
located    the same, over the cases whose truth names ranks, and some are named
mechanism  one of the truth's `mechanism` list, where the case has one
decisive   right answers (cause and culprit) on easy and medium cases that are graded likely or proven
cited      every line in `because` exists and holds its excerpt, and each regex of the truth's `must_cite`
           matches one of those excerpts
false certainty   a wrong cause graded proven or likely, or an innocent rank named with such a rank_grade
Brier      mean squared error of `confidence` against the cause being right (0 is perfect)

`must_mention` and `must_not_claim` are for a person who reads the report. A malformed report counts as
broken. Prints a markdown table; exits 1 only if the command broke on some case.
"""

import argparse
import bz2
import concurrent.futures
import gzip
import json
import lzma
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile

SURE = {"proven", "likely"}
FAMILIES = {
    "straggler": "slow_data slow_storage slow_checkpoint rank0_only_work slow_compute stopped",
    "dead_rank": "host_oom cuda_oom exception evicted killed",
    "desync": "desync_conditional desync_uneven_data desync_mismatch desync_order",
    "timeout": "timeout_too_short timeout_not_applied",
    "set_up": "init_rendezvous version_mismatch p2p_shm",
}
FAMILY = {cause: family for family, causes in FAMILIES.items() for cause in causes.split()}
CAUSES = {*FAMILY, "network", "gpu_fault", "gradient_checkpointing", "shared_infrastructure", "none", "undecided"}
BROKEN = {
    "cause": "-",
    "grade": "-",
    "rank_grade": "-",
    "named": [],
    "confidence": None,
    "cause_right": False,
    "family_right": False,
    "culprit_right": False,
    "host_right": False,
    "mechanism_right": False,
    "cited": False,
    "false_certainty": False,
}


def family(cause):
    return FAMILY.get(cause, cause)


def lines_of(path, member=""):
    """A file's lines, or those of a member of an archive."""
    if member and zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            return archive.read(member).split(b"\n") if member in archive.namelist() else []
    if member:
        with tarfile.open(path) as archive:
            found = next((entry for entry in archive if entry.name.removeprefix("./") == member), None)
            return archive.extractfile(found).read().split(b"\n") if found else []
    opener = {".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}.get(path.suffix, open)
    with opener(path, "rb") as stream:
        return stream.read().split(b"\n")


def citations(verdict, evidence, must_cite):
    """All cited lines exist and hold their excerpts, and the excerpts match every pattern."""
    excerpts, honest = [], True
    for proof in verdict.get("because", []):
        excerpt, line = proof.get("excerpt") or "", proof.get("line")
        excerpts.append(excerpt)
        if line is None:
            continue
        source, _, member = str(proof.get("source", "")).partition("!")
        found = next(
            (p for p in (evidence / source, evidence.parent / source, pathlib.Path(source)) if p.is_file()), None
        )
        lines = lines_of(found, member) if found else []
        text = lines[line - 1].decode(errors="replace") if 0 < line <= len(lines) else ""
        pieces = [w for part in re.split(r"\u2026|\.\.\.", excerpt) for w in part.split() if w.isascii()]
        honest &= bool(pieces) and sum(w in text for w in pieces) >= 0.8 * len(pieces)
    return honest and bool(excerpts) and all(any(re.search(m, e) for e in excerpts) for m in must_cite)


def judge(truth, report, evidence):
    verdict = report["verdicts"][0]
    cause, grade = verdict["cause"], verdict["grade"]
    if cause not in CAUSES:
        raise ValueError(f"unknown cause {cause!r}")
    rank_grade = verdict["rank_grade"]
    accepted = {truth["cause"], *truth.get("also_acceptable", [])}
    named = {int(c["rank"]) for c in verdict["culprits"] if c.get("rank") is not None}
    guilty = set(truth.get("culprit_ranks") or [])
    fair = [guilty, *map(set, truth.get("culprit_ranks_also", []))]
    hosts = {
        str(h).split(".")[0] for h in [*verdict.get("hosts", []), *(c.get("host") for c in verdict["culprits"])] if h
    }
    cause_right = cause in accepted
    innocent = bool(named - set().union(*fair))
    return {
        "cause": cause,
        "grade": grade,
        "rank_grade": rank_grade,
        "named": sorted(named),
        "confidence": verdict.get("confidence"),
        "cause_right": cause_right,
        "family_right": family(cause) in map(family, accepted),
        "culprit_right": named in fair or (cause == "undecided" and cause_right and named < guilty),
        "host_right": not truth.get("culprit_host") or truth["culprit_host"].split(".")[0] in hosts,
        "mechanism_right": not truth.get("mechanism") or verdict.get("mechanism") in truth["mechanism"],
        "cited": cause in {"undecided", "none"} or citations(verdict, evidence, truth.get("must_cite", [])),
        "false_certainty": (grade in SURE and not cause_right) or (rank_grade in SURE and innocent),
    }


def examine(command, case, limit):
    truth = json.loads((case / "truth.json").read_text())
    row = {
        "case": case.name,
        "truth": truth["cause"],
        "guilty": truth.get("culprit_ranks"),
        "difficulty": truth.get("difficulty", "?"),
    }
    with tempfile.TemporaryDirectory(prefix="job-") as folder:
        evidence = pathlib.Path(folder, "job")
        shutil.copytree(case, evidence, ignore=shutil.ignore_patterns("truth.json", "gen.py"))
        start = time.perf_counter()
        try:
            run = subprocess.run(
                [*shlex.split(command), *sorted(map(str, evidence.iterdir()))],
                capture_output=True,
                text=True,
                timeout=limit,
            )
            answer = judge(truth, json.loads(run.stdout), evidence)
        except subprocess.TimeoutExpired:
            answer = {**BROKEN, "error": f"no answer in {limit} s"}
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as problem:
            answer = {
                **BROKEN,
                "error": f"exit {run.returncode}, {type(problem).__name__} {problem}: {(run.stderr or run.stdout).strip()[-160:]}",
            }
    return {**row, **answer, "seconds": round(time.perf_counter() - start, 2)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", type=pathlib.Path)
    parser.add_argument("--command", default="whichrank diagnose --json")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--limit", type=float, default=60)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--only")
    args = parser.parse_args()
    cases = sorted(p.parent for p in args.cases.rglob("truth.json") if not args.only or args.only in p.parent.name)
    if not cases:
        sys.exit(f"score.py: no truth.json below {args.cases}")
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        rows = list(pool.map(lambda case: examine(args.command, case, args.limit), cases))

    def tick(ok):
        return "yes" if ok else "**no**"

    print(
        "| case | truth | answer | grade cause, ranks | ranks: truth / named | cause | culprit | mechanism | cited | false certainty | s |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for r in rows:
        print(
            f"| {r['case']} | {r['truth']} | {r.get('error', r['cause'])} | {r['grade']}, {r['rank_grade']} | {r['guilty']} / {r['named']} | {tick(r['cause_right'])} | "
            f"{tick(r['culprit_right'])} | {tick(r['mechanism_right'])} | {tick(r['cited'])} | {'**yes**' if r['false_certainty'] else ''} | {r['seconds']} |"
        )

    def mean(values):
        return sum(values) / len(values) if values else float("nan")

    def share(key):
        return mean([r[key] for r in rows])

    right = [
        r
        for r in rows
        if r["cause_right"]
        and r["culprit_right"]
        and r["difficulty"] in {"easy", "medium"}
        and r["truth"] != "undecided"
    ]
    decisive = mean([r["grade"] in SURE for r in right])
    brier = mean([(r["confidence"] - r["cause_right"]) ** 2 for r in rows if isinstance(r["confidence"], (int, float))])
    located = mean([r["culprit_right"] and bool(r["named"]) for r in rows if r["guilty"]])
    broken = sum("error" in r for r in rows)
    print(
        f"\ncases {len(rows)}, broken {broken}, cause {share('cause_right'):.1%}, family {share('family_right'):.1%}, culprit {share('culprit_right'):.1%}, located {located:.1%}, "
        f"host {share('host_right'):.1%}, mechanism {share('mechanism_right'):.1%}, cited {share('cited'):.1%}, decisive {decisive:.1%}, "
        f"false certainty {share('false_certainty'):.1%}, Brier {brier:.3f}"
    )
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()

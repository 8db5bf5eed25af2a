"""The pages that are made from code alone: each cause, each format of evidence, and which evidence settles which cause.

Nothing is written here that a module says already: a cause's texts stand in causes/, a format's in its reader's docstring
and in the fields `title`, `versions` and `collect` of its `Reader`.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path

from whichrank.causes import BY_ID, CAUSES
from whichrank.evidence import READERS, Evidence, read_piece
from whichrank.evidence.scan import Reader
from whichrank.facts import Fact
from whichrank.model import FAMILIES, FAMILY, Check
from whichrank.report.evidence_pages import EvidencePage, by_name, evidence_page, readers_of
from whichrank.report.explain import MESSAGES, decoded, filled

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
GENERATED = "<!-- Made by `python docs/build.py`: change that, not this. -->\n"
TITLES = {
    "straggler": "A rank that comes late",
    "dead_rank": "A rank that is gone",
    "desync": "Ranks that call different collectives",
    "timeout": "The limit itself",
    "network": "The path between ranks",
    "set_up": "Ranks that never got together",
    "gpu_fault": "A GPU",
    "gradient_checkpointing": "Gradient checkpointing",
    "shared_infrastructure": "Something that several nodes or runs share",
    "none": "No problem",
    "undecided": "No answer",
}
SAMPLES = 3  # shown on a page


def pages() -> Iterator[tuple[Path, str]]:
    """Every page with its text. The table in evidence.md is `evidence_table`, between its marks."""
    yield DOCS / "causes.md", causes_index()
    for cause in FAMILY:
        yield DOCS / "causes" / f"{cause}.md", cause_page(cause)
    for name in READERS:
        yield DOCS / "evidence" / f"{name}.md", evidence_page_of(name)
    yield DOCS / "settle.md", settle_page()


# --- causes


def causes_index() -> str:
    rows = [
        "# Causes\n",
        GENERATED,
        "What whichrank can say went wrong, by family, a page each. In the terminal: `whichrank explain host_oom`. The same "
        "texts stand in the reports, with your own hosts, ranks and pids in place of HOST, RANK and PID. Which evidence "
        "proves which cause: [settle.md](settle.md).\n",
        "| family | cause | in short |",
        "|---|---|---|",
    ]
    for family, ids in FAMILIES.items():
        for place, cause in enumerate(ids):
            title = BY_ID[cause].title if cause in BY_ID else "something is wrong, and the evidence cannot say what"
            rows.append(f"| {TITLES[family] if not place else ''} | [{cause}](causes/{cause}.md) | {title} |")
    return "\n".join(rows) + "\n"


def cause_page(cause_id: str) -> str:
    if cause_id not in BY_ID:
        return _UNDECIDED.format(generated=GENERATED)
    cause = BY_ID[cause_id]
    fixes = [cause.fix[0]] if len(cause.fix) == 1 else [f"- {text}" for text in cause.fix]
    rows = [
        f"# {cause.id}\n",
        GENERATED,
        f"**{_capital(cause.title)}.** {filled(cause.means)}\n",
        f"## Looks like\n\n{_capital(filled(cause.looks_like))}\n",
        "## What proves it\n\n" + "".join(_check(check, "../evidence/") for check in cause.settles).rstrip() + "\n",
        "## Fix\n\n" + "\n".join(map(filled, fixes)) + "\n",
    ]
    if cause.stopgap:
        rows.append(f"**Until then.** {filled(cause.stopgap)}\n")
    if cause.dont:
        rows.append(f"**Don't** {filled(cause.dont)}.\n")
    if not cause.blames_ranks and cause.id != "none":
        rows.append("It names hosts, not ranks: no rank is at fault.\n")
    rows.append("## Beside it\n\n" + _relatives(cause.id) + "\n")
    return "\n".join(rows)


def _relatives(cause: str) -> str:
    family = FAMILY[cause]
    others = [f"- [{other}]({other}.md): {BY_ID[other].title}\n" for other in FAMILIES[family] if other != cause]
    same = f"{TITLES[family]}, too:\n\n{''.join(others)}\n" if others else ""
    return f"{same}[All causes](../causes.md). In the terminal: `whichrank explain {cause}`."


def _check(check: Check, folder: str) -> str:
    """One check: what it answers, the command, and the evidence that it makes."""
    links = ", ".join(f"[{name}]({folder}{name}.md)" for name in readers_of(check))
    text = f"- {filled(check.says)}" + (f" (evidence: {links})" if links else "") + "\n"
    return text + (f"\n  ```sh\n  {filled(check.command)}\n  ```\n\n" if check.command else "\n")


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


_UNDECIDED = """# undecided

{generated}
**Undecided.** Something is wrong, and the evidence cannot say what. The ranks may be certain all the same: they are
graded apart from the cause.

## Looks like

One log with nothing but timeouts; every rank waited in the same collective; two sides wait in different collectives and
nothing shows which is wrong.

## What would decide it

The report lists it under "to be sure": the stack and the last output of the ranks that printed no timeout
([stacks](../evidence/stacks.md)), the kernel log of their hosts ([kernel](../evidence/kernel.md)), the scheduler's record
of the job ([slurm](../evidence/slurm.md), [kubernetes](../evidence/kubernetes.md)).

**Don't** change settings by guess: the next hang will look the same.

## Beside it

[All causes](../causes.md). In the terminal: `whichrank explain undecided`.
"""


# --- evidence


def evidence_page_of(name: str) -> str:
    page = evidence_page(name)
    rows = [f"# {name}\n", GENERATED, *(f"{_markdown(text)}\n" for text in page.about)]
    if not any(page.versions in text for text in page.about):
        rows.append(f"Versions: {page.versions}.\n")
    rows.append("## Get it\n\n```sh\n" + "\n".join(page.collect) + "\n```\n")
    rows.append("## A sample\n" if len(page.samples) == 1 else "## Samples\n")
    rows += [_sample(text, facts) for text, facts in page.samples[:SAMPLES]]
    rows.append("## What it says\n\nKinds of facts, as in [facts.md](../facts.md):\n")
    rows.append("| fact | means |\n|---|---|\n" + "".join(map(_kind, kinds_of(name))))
    rows.append("## What it settles\n")
    rows.append(_settles(page))
    rows.append(f"[All evidence](../evidence.md). In the terminal: `whichrank explain {name}`.\n")
    return "\n".join(rows)


def _sample(text: str, facts: Sequence[Fact]) -> str:
    shown = [f"`{fact.kind}`" + (f" ({read})" if (read := _markdown(decoded(fact))) else "") for fact in facts[:3]]
    more = f" and {len(facts) - 3} more" if len(facts) > 3 else ""
    return f"```text\n{text.strip(chr(10))}\n```\n\nreads as: {', '.join(shown)}{more}\n"


def _kind(kind: str) -> str:
    return f"| `{kind}` | {_markdown(MESSAGES[kind].means).replace('|', chr(92) + '|')} |\n"


def _settles(page: EvidencePage) -> str:
    if not page.settles:
        return (
            "No check of a cause asks for it by name: whatever the cause, it says who waited, who failed first, what was "
            f"set or what is missing.\n{_weighed(page.name)}"
        )
    causes = dict.fromkeys(cause.id for cause, _ in page.settles)
    rows = []
    for cause in causes:
        says = "; ".join(filled(check.says) for other, check in page.settles if other.id == cause)
        rows.append(f"- [{cause}](../causes/{cause}.md): {says}")
    return "\n".join(rows) + "\n" + _weighed(page.name)


def _weighed(name: str) -> str:
    """The causes that look at facts of this reader themselves."""
    kinds = set(kinds_of(name))
    causes = [f"[{cause.id}](../causes/{cause.id}.md)" for cause in CAUSES if kinds & _asked(cause.weigh.__module__)]
    return f"\nIts facts are clues for or against {', '.join(causes)}.\n" if causes else ""


@cache
def _asked(module: str) -> set[str]:
    """Kinds of facts that a cause's module asks the job for: `job.of("oom_event")`."""
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "of"]
    return {arg.value for call in calls for arg in call.args if isinstance(arg, ast.Constant)}


def _markdown(text: str) -> str:
    """Prose of a docstring: double backticks are one, what Markdown would take for a tag is escaped."""
    return re.sub(r"<(?=\w)", r"\\<", text.replace("``", "`"))


@cache
def kinds_of(name: str) -> list[str]:
    """Kinds of facts that a reader may yield: of its tables, and those that the modules behind its blocks make."""
    reader = by_name()[name]
    found = {line.kind for line in reader.lines}
    for module in _modules(reader):
        tree = ast.parse(inspect.getsource(sys.modules[module]))
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
            made = getattr(call.func, "attr", getattr(call.func, "id", ""))
            if made in ("fact", "Fact", "_placed", "replace") or made.startswith("_"):
                found |= {
                    arg.value for arg in call.args[:3] if isinstance(arg, ast.Constant) and isinstance(arg.value, str)
                }
    sampled = {fact.kind for _, facts in evidence_page(name).samples for fact in facts}
    return sorted((found & set(MESSAGES)) | sampled)


def _modules(reader: Reader) -> set[str]:
    makers: list[object] = [*map(type, reader.blocks), *(line.read for line in reader.lines if line.read)]
    makers += [reader.note, reader.whole.read if reader.whole else None]
    names = {str(getattr(maker, "__module__", "")) for maker in makers if maker}
    return {name for name in names if name.startswith("whichrank.evidence.") and not name.endswith((".tool", ".scan"))}


def evidence_table(proofs: dict[str, str]) -> str:
    """evidence x versions x what proves that it is read: a test, and a file of a case."""
    rows = ["| evidence | versions | a sample, tested |", "|---|---|---|"]
    for name in READERS:
        reader = by_name()[name]
        tested = [f"[{path.name}](../{path.relative_to(ROOT).as_posix()})" for path in tests_of(name)[:1]]
        tested.append(proofs.get(name, f"[its docstring](../src/whichrank/evidence/{name}.py)"))
        rows.append(f"| [{name}](evidence/{name}.md): {reader.title} | {reader.versions} | {', '.join(tested)} |")
    return "\n".join(rows)


def tests_of(name: str) -> list[Path]:
    """The tests of a reader: the file of its name, else those that speak of its kinds of facts, most of them first."""
    own = ROOT / "tests" / "evidence" / f"test_{name}.py"
    if own.exists():
        return [own]
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(own.parent.glob("test_*.py"))}
    told = {path: sum(f'"{kind}"' in text for kind in kinds_of(name)) for path, text in texts.items()}
    return [path for path in sorted(told, key=lambda path: -told[path]) if told[path]]


def proofs(cases: Iterable[Path]) -> dict[str, str]:
    """For each reader a link to the first file of these cases in which it found something."""
    found: dict[str, str] = {}
    for case in cases:
        for path in sorted(case.rglob("*")):
            if not path.is_file() or path.name in ("truth.json", "gen.py") or path.suffix == ".gz":
                continue
            evidence = Evidence()
            read_piece(path.name, path.read_bytes(), evidence)
            place = path.relative_to(ROOT).as_posix()
            for reader in {reader for source in evidence.sources for reader in source.readers} - set(found):
                found[reader] = f"[{case.name}](../{place})"
        if len(found) == len(READERS):
            break
    return found


# --- which evidence settles which cause


def settle_page() -> str:
    rows = [
        "# Which evidence settles which cause\n",
        GENERATED,
        "For each cause, what proves or disproves it, and the command that collects it; then the other way round. Give the "
        "output to whichrank together with the logs, in one folder: it knows the formats. HOST, PID and the like stand for "
        "yours; a report puts them in.\n",
        "*Which rank*, and in which call, is settled for nearly all of them by the Flight Recorder dumps of all ranks "
        "([dumps.md](dumps.md)); the checks below then say why.\n",
        "## From the cause to the evidence\n",
    ]
    for cause in CAUSES:
        rows.append(f"### {cause.id}\n")
        rows.append(f"[{_capital(cause.title)}](causes/{cause.id}.md).\n")
        rows.append("".join(_check(check, "evidence/") for check in cause.settles).rstrip() + "\n")
    rows += ["## From the evidence to the causes\n", "| evidence | get it with | can settle |", "|---|---|---|"]
    for name in READERS:
        page = evidence_page(name)
        causes = ", ".join(f"[{cause}](causes/{cause}.md)" for cause in dict.fromkeys(c.id for c, _ in page.settles))
        commands = "<br>".join(f"`{command.replace('|', chr(92) + '|')}`" for command in page.collect)
        rows.append(f"| [{name}](evidence/{name}.md) | {commands} | {causes} |")
    return "\n".join(rows) + "\n"

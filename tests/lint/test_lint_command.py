"""`whichrank lint` from the outside: places, codes, silencing, choices, bad input, exit codes; nothing ever raises."""

import ast
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from whichrank.__main__ import run
from whichrank.lint.check import check
from whichrank.lint.files import parse
from whichrank.lint.rules import RULES

CORPUS = Path(__file__).parent / "corpus"
OPEN = sorted(CORPUS.glob("*.py"))
GUILTY = "import torch.distributed as dist\nrank = dist.get_rank()\nif rank == 0:\n    dist.barrier(){}\n"
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def lint(capfd: pytest.CaptureFixture[str]) -> Run:
    def go(*args: object) -> tuple[int, str, str]:
        code = run(["lint", *map(str, args)])
        out, err = capfd.readouterr()
        return code, out, err

    return go


def findings(text: str) -> list[tuple[int, str]]:
    return [(each.line, each.code) for each in check(ast.parse(text), text)]


def test_a_finding_has_its_place_code_and_cure(lint: Run, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(GUILTY.format(""))
    code, out, _ = lint(tmp_path)

    assert code == 1
    assert re.match(
        rf"{re.escape(str(tmp_path))}/train\.py:4:5: WR102 .*`barrier`.*\n    fix: \S.*\n1 finding in 1 file", out
    )


def test_nothing_found_is_exit_code_0(lint: Run, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("print(1)\n")
    assert lint(tmp_path)[:2] == (0, "nothing found in 1 file\n")


@pytest.mark.parametrize(
    "comment, code", [("noqa", 0), ("NOQA: WR102", 0), ("noqa: E501, WR102", 0), ("noqa: WR101", 1)]
)
def test_noqa(lint: Run, tmp_path: Path, comment: str, code: int) -> None:
    (tmp_path / "a.py").write_text(GUILTY.format(f"  # {comment}"))
    assert lint(tmp_path)[0] == code


def test_noqa_in_a_string_silences_nothing(lint: Run, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(GUILTY.format("; x = '# noqa'"))
    assert lint(tmp_path)[0] == 1


@pytest.mark.parametrize(
    "options, code",
    [(["--select", "WR102"], 1), (["--select", "wr1"], 1), (["--select", "WR2"], 0), (["--ignore", "WR102"], 0)],
)
def test_rules_are_chosen(lint: Run, tmp_path: Path, options: list[str], code: int) -> None:
    (tmp_path / "a.py").write_text(GUILTY.format(""))
    assert lint(*options, tmp_path)[0] == code


@pytest.mark.parametrize("options", [["--select", "XX1", "."], ["--explain", "WR999"], [], ["/nowhere/at/all"]])
def test_wrong_usage_is_exit_code_2_and_a_word(lint: Run, options: list[str]) -> None:
    code, _, err = lint(*options)
    assert code == 2 and err.startswith("whichrank: ")


def test_json(lint: Run, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(GUILTY.format(""))
    (tmp_path / "b.py").write_bytes(b"\0\1\2")
    code, out, _ = lint("--json", tmp_path)
    told = json.loads(out)

    assert code == 1
    assert [(each["line"], each["column"], each["code"]) for each in told["findings"]] == [(4, 5, "WR102")]
    assert [each["path"] for each in told["unreadable"]] == [str(tmp_path / "b.py")]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_each_rule_is_explained_and_its_samples_are_python(lint: Run, rule: object) -> None:
    code, out, _ = lint("--explain", rule.code)  # type: ignore[attr-defined]
    assert code == 0 and rule.name in out and "Instead" in out  # type: ignore[attr-defined]
    ast.parse(rule.sample)  # type: ignore[attr-defined]
    ast.parse(rule.instead)  # type: ignore[attr-defined]


def test_what_cannot_be_read_is_told_and_the_rest_is_linted(lint: Run, tmp_path: Path) -> None:
    (tmp_path / "good.py").write_text(GUILTY.format(""))
    (tmp_path / "python2.py").write_text("print 1\n")
    (tmp_path / "image.py").write_bytes(b"\x89PNG\0\0")
    (tmp_path / "latin.py").write_bytes(b"x = '\xff\xfe'\n")
    (tmp_path / "deep.py").write_text("(" * 5000 + ")" * 5000)
    (tmp_path / "large.py").write_bytes(b"#" * (3 << 20))
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "circle.py").symlink_to(tmp_path / "circle.py")
    code, out, err = lint(tmp_path, tmp_path / "circle.py")

    assert code == 1 and out.count("WR102") == 2  # the finding, and where to read more
    for name in ("python2", "image", "latin", "deep", "large", "circle"):
        assert f"{name}.py: " in err
    assert "Traceback" not in err


def test_a_notebook_has_cells(lint: Run, tmp_path: Path) -> None:
    source = ["%matplotlib inline\n", "import torch.distributed as dist\n", "dist.init_process_group('nccl')"]
    cells = [{"cell_type": "markdown", "source": "x"}, {"cell_type": "code", "source": source}]
    (tmp_path / "a.ipynb").write_text(json.dumps({"cells": cells}))
    (tmp_path / "b.ipynb").write_text("[]")
    code, out, err = lint(tmp_path)

    assert code == 1 and "a.ipynb:cell 2:3:1: WR201" in out and "b.ipynb: not a notebook" in err


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=400))
@example(b"# -*- coding: nonsense -*-\n")
def test_any_bytes_are_read_or_told(data: bytes) -> None:
    for name in ("a.py", "a.ipynb"):
        parse(name, data)


@settings(max_examples=120, deadline=None)
@given(st.sampled_from(OPEN), st.integers(0, 4000))
def test_a_truncated_source_never_raises(path: Path, length: int) -> None:
    read = parse("a.py", path.read_bytes()[:length])
    if isinstance(read, tuple):
        check(read[1], read[0].text)


class Renamed(ast.NodeTransformer):
    """Local variables get other names; what is imported, called by keyword or a word of the field keeps its name."""

    def __init__(self, names: set[str]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.Name:
        if node.id in self.names:
            return ast.copy_location(ast.Name(f"zq_{node.id[::-1]}", node.ctx), node)
        return node


WORDS = re.compile(
    r"rank|world|loader|batch|stream|accelerator|fabric|trainer|engine|strategy|gpu|main|master|stop|env|group|pg"
)


@pytest.mark.parametrize("path", OPEN, ids=lambda path: path.stem)
def test_the_names_of_local_variables_say_nothing(path: Path) -> None:
    text = path.read_text()
    tree = ast.parse(text)
    names: set[str] = set()
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            spec = function.args
            names |= {
                node.id
                for statement in ast.walk(function)
                if isinstance(statement, ast.Assign)
                for target in statement.targets
                for node in ast.walk(target)
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
            }
            names -= {each.arg for each in [*spec.posonlyargs, *spec.args, *spec.kwonlyargs]}
    parameters = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    names = {name for name in names - parameters if not WORDS.search(name)}
    renamed = ast.fix_missing_locations(Renamed(names).visit(ast.parse(text)))

    assert [(each.line, each.code) for each in check(renamed, text)] == findings(text)


@pytest.mark.parametrize("path", OPEN, ids=lambda path: path.stem)
def test_a_condition_that_always_holds_changes_nothing(path: Path) -> None:
    text = path.read_text()
    if "from __future__" in text:
        pytest.skip("must stand first")
    wrapped = "if True:\n" + "".join(f"    {line}\n" for line in text.splitlines())

    assert findings(wrapped) == [(line + 1, code) for line, code in findings(text)]


def test_the_corpus_is_judged_as_promised() -> None:
    """Precision and recall on the open files; the held-back ones are measured by bench/lint_accuracy.py."""
    import lint_accuracy

    score = lint_accuracy.measured()["open"]
    assert score.told == []

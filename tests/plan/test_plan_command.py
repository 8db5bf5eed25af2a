"""The command line: options from inputs, forms from names, words for mistakes."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import warnings
from pathlib import Path

import click
import pytest

from whichrank.__main__ import run
from whichrank.cli import main
from whichrank.plan import CALCULATORS


def test_options_are_unique() -> None:
    plan = main.get_command(click.Context(main), "plan")
    assert isinstance(plan, click.Group)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in CALCULATORS:
            command = plan.get_command(click.Context(plan), name)
            assert command is not None
            names = [option for param in command.params for option in (*param.opts, *param.secondary_opts)]
            assert len(names) == len(set(names)), name
            command.get_help(click.Context(command, info_name=name))


def test_prints_and_ends_well(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", "memory", "--data", "8", "--explain"]) == 0
    printed = capfd.readouterr().out
    assert "It fits" in printed and "How it is computed" in printed and "Defaults, by date and source" in printed


@pytest.mark.parametrize(
    ("suffix", "start"), [("json", "{"), ("md", "## Memory"), ("html", "<!doctype html>"), ("txt", "Memory")]
)
def test_form_follows_the_file_name(tmp_path: Path, suffix: str, start: str) -> None:
    target = tmp_path / f"out.{suffix}"
    assert run(["plan", "memory", "--data", "8", "-o", str(target)]) == 0
    assert target.read_text(encoding="utf-8").startswith(start)


def test_json_on_standard_output(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", "pipeline", "--stages", "4", "--microbatches", "8", "--json"]) == 0
    data = json.loads(capfd.readouterr().out)
    assert data["result"]["rows"][0]["schedule"] == "1f1b"


@pytest.mark.parametrize(
    ("args", "word"),
    [
        (["tp", "--nic", "5GB"], "--nic: '5GB': 'GB' is no unit of a bandwidth"),
        (["tp", "--gpu", "h1000"], "Did you mean h100"),
        (["tp", "--mode", "train"], "--mode: 'train' is none of training, serving"),
        (["memory", "--microbatch", "1.5"], "no whole number"),
        (["cost", "--gpus", "0"], "at least 1"),
        (["cost", "--gpu", "h100", "--gpus", "1M"], "65,536"),
        (["memory", "--model", "no/such/config.json"], "Give a preset"),
        (["finetune", "--tokens", "5GB"], "no unit of a number"),
        (["tp", "--precision", "fp8", "--gpu", "a100"], "has no fp8 units"),
        (["tp", "--figures", "no-such.toml"], "cannot read"),
        (["tp", "--set", "gpus.h100.bandwidth=0"], "zero"),
        (["finetune", "--tokens", "1M", "--goodput", "0"], "--goodput: '0': at least 0.01"),
        (["cost", "--gpus", "1e300"], "beyond reason"),
    ],
)
def test_mistakes_get_a_word(args: list[str], word: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", *args]) == 2
    assert word in capfd.readouterr().err


def test_settings_reach_the_answer(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", "cost", "--set", "prices.h100.node=100k", "--json"]) == 0
    data = json.loads(capfd.readouterr().out)
    node = next(figure for figure in data["figures"] if figure["name"] == "prices.h100.node")
    assert node["value"]["likely"] == 100e3 and node["source"] == "given by you (--set)"


def test_a_job_says_what_it_took_for_granted(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", "job", "--sequence", "4096", "--microbatch", "2", "--precision", "fp8"]) == 0

    said = " ".join(capfd.readouterr().out.split())
    assert "4,096 tokens a sequence, 2 in a microbatch" in said and "fp8 products" in said


def test_help_loads_no_calculator() -> None:
    """`whichrank --help` and `whichrank plan --help` stay quick."""
    script = (
        "import sys; from whichrank.__main__ import run; run(sys.argv[1:]);"
        "print([name for name in sys.modules if name in ('rich', 'jinja2', 'numpy', 'tomllib', 'whichrank.plan.tensor')])"
    )
    for args in (["--help"], ["plan", "--help"]):
        done = subprocess.run([sys.executable, "-c", script, *args], capture_output=True, text=True, check=True)
        assert done.stdout.rstrip().endswith("[]"), args


def test_answers_are_quick() -> None:
    begin = time.process_time()
    for name, more in (
        ("tp", []),
        ("memory", []),
        ("cost", []),
        ("timeout", []),
        ("job", []),
        ("finetune", ["--tokens", "1M"]),
    ):
        assert run(["plan", name, *more, "--json", "-o", "/dev/null"]) == 0
    assert time.process_time() - begin < 5

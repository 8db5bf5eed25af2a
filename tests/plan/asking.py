"""Every calculator with inputs that it can answer, for tests that hold for all of them."""

from __future__ import annotations

from datetime import date
from importlib import import_module
from typing import Any

from whichrank.plan import CALCULATORS, catalog
from whichrank.plan.answer import Answer
from whichrank.plan.catalog import Catalog
from whichrank.plan.inputs import questions, read

TODAY = date(2026, 11, 30)
# a few questions for each calculator, as on a command line
ASKED: tuple[tuple[str, dict[str, str]], ...] = (
    ("tp", {}),
    ("tp", {"sizes": "2,4,16", "recompute": "full", "nic": "100Gb/s", "overlap": "20%"}),
    ("tp", {"mode": "serving", "model": "llama-3.1-70b", "precision": "fp8"}),
    ("tp", {"mode": "serving", "model": "llama-3.1-405b", "gpu": "4090"}),
    ("tp", {"mode": "serving", "model": "mixtral-8x7b", "batch": "4"}),
    ("cost", {}),
    ("cost", {"gpus": "16k", "topology": "rails", "facility": "tokyo"}),
    ("cost", {"gpus": "100", "gpu": "h200", "node_price": "300k-350k", "topology": "dual-plane"}),
    ("cost", {"gpus": "144", "gpu": "gb200"}),
    ("finetune", {"tokens": "50M"}),
    ("finetune", {"tokens": "1B", "gpu": "4090", "gpus": "1", "recompute": "auto", "model": "llama-2-7b"}),
    ("pipeline", {}),
    ("pipeline", {"stages": "4", "microbatches": "6", "target": "10%"}),
    ("pipeline", {"model": "llama-3.1-70b", "stages": "8", "microbatches": "32", "chunks": "5"}),
    ("memory", {}),
    ("memory", {"method": "qlora", "gpu": "a6000", "states": "bf16", "microbatch": "4"}),
    ("memory", {"model": "gpt3-175b", "tensor": "8", "pipeline": "8", "data": "16", "states": "megatron"}),
    ("timeout", {}),
    ("timeout", {"model": "llama-3.1-70b", "rank0": "30min", "torch": "2.0", "killed_after": "5min"}),
    ("job", {}),
    ("job", {"model": "qwen3-30b-a3b", "tensor": "1", "pipeline": "1", "experts": "8", "tokens": "1T"}),
)


def figures(*settings: str) -> Catalog:
    return catalog.load(settings=settings, today=TODAY)


def plan(name: str, given: dict[str, Any], *settings: str) -> Any:
    """The typed result, from inputs as typed."""
    module = import_module(CALCULATORS[name][0])
    asked = {field: question for field, question, _ in questions(module.Inputs)}
    inputs = module.Inputs(**{field: read(value, asked[field], field) for field, value in given.items()})
    return module.plan(inputs, figures(*settings))


def answer(name: str, given: dict[str, Any], *settings: str) -> Answer:
    found: Answer = import_module(CALCULATORS[name][0]).answer(plan(name, given, *settings))
    return found

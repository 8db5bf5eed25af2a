"""gradient_checkpointing: errors of activation checkpointing, on every rank alike."""

from __future__ import annotations

import re
from collections.abc import Iterator

from whichrank.causes.base import Cause, Clue
from whichrank.facts import Fact, Said
from whichrank.findings import Findings
from whichrank.job.model import Job
from whichrank.model import Check
from whichrank.ranges import several

_SURE = re.compile(
    r"mark(?:ed)? (?:a variable )?(?:as )?ready (?:only once|twice)|None of the inputs have requires_grad|torch\.utils\.checkpoint|CheckpointError|A different number of tensors was saved|"
    r"Recomputed values for the following tensors|use_reentrant|checkpoint.*recomput|Trying to backward through the graph.*checkpoint|unpack is being triggered for a tensor that was already unpacked|"
    r"Checkpointing is not compatible with \.grad\(\)",
    re.I,
)
_MAYBE = re.compile(
    r"does not require grad and does not have a grad_fn|Expected to have finished reduction in the prior iteration|unused parameters|saved tensors.*different metadata",
    re.I,
)
_CONTEXT = re.compile(
    r"None of the inputs have requires_grad|use_reentrant|gradient[ _]checkpointing|torch/utils/checkpoint\.py|activation[ _]checkpoint",
    re.I,
)


def weigh(job: Job, found: Findings) -> Iterator[Clue]:
    errors = [failure.fact for failure in found.failed.roots if failure.kind == "exception"]
    sure = [fact for fact in errors if _SURE.search(f"{fact['type']}: {fact['message']}")]
    context = job.saying(_CONTEXT)
    framed = [
        fact for fact in errors if any("torch/utils/checkpoint.py" in str(frame) for frame in fact["frames"] or ())
    ]
    maybe = [fact for fact in errors if _MAYBE.search(str(fact["message"]))]
    if sure and not any("ready" in str(fact["message"]) and not (context or framed) for fact in sure):
        yield from _clue(job, sure[0], sure, 8.0, context[:1])
    elif sure:
        yield from _clue(job, sure[0], sure, 5.5, context[:1])
    elif maybe and (context or framed):
        warned = [line for line in context if re.search(r"None of the inputs have requires_grad", line.text)]
        yield from _clue(job, maybe[0], maybe, 7.5, warned[:1] or context[:1])
    elif (
        framed
        and found.failed.first is not None
        and found.failed.first.fact is framed[0]
        and re.search(r"checkpoint|recomput|saved|metadata", str(framed[0]["message"]), re.I)
    ):
        yield from _clue(job, framed[0], framed, 4.0, [])


def _clue(job: Job, fact: Fact, alike: list[Fact], weight: float, extra: list[Said]) -> Iterator[Clue]:
    ranks = sorted({other.rank for other in alike if other.rank is not None})
    where = several(ranks) if ranks else "the program"
    yield Clue(
        weight,
        "traceback",
        f"{where} raised {str(fact['message'])[:110]}",
        (fact, *extra),
        (),
        decisive=True,
        mechanism="dead",
    )


CAUSE = Cause(
    id="gradient_checkpointing",
    title="activation checkpointing used wrongly",
    means="Activation (gradient) checkpointing recomputes the forward inside backward; with re-entrant checkpoints that breaks DDP's hooks, frozen inputs, or the saved tensors. It is the same error on every rank, no rank's fault.",
    looks_like="'marked as ready twice', 'None of the inputs have requires_grad=True', 'Recomputed values … have different metadata', raised in backward through torch/utils/checkpoint.py.",
    settles=(Check("does it go away? Run two steps with checkpointing off, then with use_reentrant=False"),),
    fix=(
        "Use the non-re-entrant form: torch.utils.checkpoint.checkpoint(fn, *args, use_reentrant=False); with transformers: gradient_checkpointing_kwargs={'use_reentrant': False}.",
        "With frozen embeddings (LoRA): model.enable_input_require_grads(). With DDP: find_unused_parameters=False, or static_graph=True.",
        "If the recomputation differs: keep the RNG state, no data-dependent branches or caches (use_cache=False) in the checkpointed part.",
    ),
    stopgap="Switch gradient checkpointing off for the failing module.",
    weigh=weigh,
    mechanism="dead",
    blames_ranks=False,
    verb="activation checkpointing raised the same error on every rank",
    dont="look for a hang: the program stops with an error",
)

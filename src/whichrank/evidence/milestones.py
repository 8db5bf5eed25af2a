"""How far a run came, in the words of training programs: saved, restored, restarted, finished.

A line that only says that one epoch, one shard or one file is done is no success of the run. Besides the words of the
field: DeepSpeed 0.6 to 0.18 (checkpoint_engine/), Megatron-LM (training/checkpointing.py, to 2026-09), torchtitan
(components/checkpoint.py), verl 0.2 to 0.6, fairseq, Hugging Face, Lightning.

>>> from whichrank.evidence.sample import facts
>>> from whichrank.evidence.scan import Reader
>>> def read(text):
...     return [(fact.kind, fact["step"] if fact["step"] is not None else fact["scope"]) for fact in facts(Reader("milestones", LINES), text)]
>>> read("2026-05-12 10:12:54 | finished, 300 steps"), read("[rank0] done, 600 iterations"), read("[rank0] epoch 3 done")
([('success', 'job')], [('success', 'rank')], [])
>>> read("2026-05-12 09:24:17 | checkpoint step 100 saved"), read("[rank0] resumed from step 01200")
([('checkpoint_saved', 100)], [('restored', 1200)])
>>> saved, = facts(Reader("milestones", LINES), "Saved checkpoint c.pt (epoch 1 @ 1000 updates, score 7.1) (writing took 12.3 seconds)")
>>> saved["step"], saved["seconds"]
(1000, 12.3)
"""

from __future__ import annotations

from typing import Any

from whichrank.evidence.scan import Line

_STEP = r"(?:(?=.*?(?i:\b(?:global[ _-]?step|step|iteration|iter|update)[ _=:#-]{0,9})0*(?P<step>\d+))|(?=.*?@ (?P<step_>\d+) updates)|(?=.*?(?i:checkpoint|ckpt)[-_]0*(?P<step__>\d+)\b))?"
_TOOK = r"(?:(?=.*?(?i:\bin|took|\)in) (?P<seconds>\d+(?:\.\d+)?) ?(?:s|sec|secs|seconds)\b))?"


def _step(values: dict[str, Any]) -> None:
    for name in ("step_", "step__"):
        if (value := values.pop(name, None)) is not None:
            values.setdefault("step", value)
    if (seconds := values.get("seconds")) is not None:
        values["seconds"] = float(seconds)


_SAID_AT_START = r"(?:^|[\]|:>)] ?|- )\s*"
_NOT_ECHOED = r"^(?!.{1200})(?!\s*\+ |.*\becho\b)"
SUCCESS = (
    Line(
        "success",
        "exited with",
        rf"{_NOT_ECHOED}.*?(?P<text>\ball (?:\d+ )?(?:workers|processes|ranks|tasks) exited (?:with (?:(?:exit )?(?:code|status) )?0|successfully)\b)",
        {"scope": "job"},
    ),
    *(
        Line(
            "success",
            ("xit code", "xit status", "exit=", "exited with", "xit_code", "return code"),
            rf"{_NOT_ECHOED}(?{sign}.*(?i:\b(?:process|worker|pid)\b))(?!\s*Exit Code:\s)(?!.*\ball \d* ?(?:workers|processes|ranks|tasks) exited).*?(?P<text>(?i:\b(?:exit(?:ed)?|return)(?:[ _-](?:with )?(?:exit )?(?:code|status))?(?: ?[:=] ?| (?:with |is |was )?))0)(?![\d.x:,]|\w)(?!.*Completed)",
            {"scope": scope},
        )
        for sign, scope in (("=", "rank"), ("!", "job"))
    ),
    Line(
        "success",
        (" with 0", "code 0", "status 0", "rc=0", "rc 0", "with 0"),
        rf"{_NOT_ECHOED}(?!.*(?i:rank|worker|pid)).*?(?P<text>(?i:\b(?:attempt|run|trial|job|training)\b #?\d* ?(?:ended|finished|exited|returned|completed|terminated),? (?:with )?\(?(?:exit )?(?:code |status |rc[= ])?)0)(?![\d.x:,%]|\w| (?:errors|warnings))",
        {"scope": "job"},
    ),
    Line(
        "success",
        "successful",
        rf"{_NOT_ECHOED}(?!.*(?i:rank|worker|pid|checkpoint|download)).*?(?P<text>\b(?:[Jj]ob|[Rr]un|[Ee]xperiment|[Ww]orkflow|[Tt]rial) (?:has )?(?:completed|finished|ended|succeeded) successfully|Exiting after successful completion)",
        {"scope": "job"},
    ),
    Line(
        "success",
        "raining",
        r"^(?!.{1200}).*?(?P<text>(?i:\btraining (?:has |is |was |run )?(?:finished|complete|completed|done|succeeded|ended successfully)|\b(?:finished|completed) training)\b)(?! ?(?i:(?:for |of |with |in )?(?:this |the )?(?:epoch|shard|step|round|stage|fold|batch)))",
        {"scope": "job"},
    ),
    Line(
        "success",
        "Trainer.fit",
        r"(?P<text>`?Trainer\.fit`? stopped: `?max_\w+=-?\d+`? reached)",
        {"scope": "job", "launcher": "lightning"},
    ),
    Line(
        "success",
        "eporting training SUCCESS",
        r"(?P<text>[Rr]eporting training SUCCESS)",
        {"scope": "job", "launcher": "sagemaker"},
    ),
    Line(
        "success",
        "exits successfully",
        r"(?P<text>Process (?P<pid>\d+) exits successfully)",
        {"scope": "rank", "launcher": "deepspeed"},
    ),
    *(
        Line(
            "success",
            ("inished", "one", "ompleted"),
            rf"^(?!.{{1200}})(?{sign}.*(?i:rank)).*?{_SAID_AT_START}(?P<text>(?i:finished|done|completed)[,.:]? (?:all |after )?(?P<steps>\d+) (?:steps|iterations|iters|updates|epochs)\b)",
            {"scope": scope},
        )
        for sign, scope in (("=", "rank"), ("!", "job"))
    ),
)
CHECKPOINTS = (
    Line(
        "checkpoint_saved",
        ("aved", "written", "wrote", "inished saving", "is ready now"),
        rf"^(?!.{{1200}})(?!.*(?i:not saved|could not|fail|will be|to be saved|never|is left to|configuration saved|tokenizer|last saved))(?=(?i:.*(?:checkpoint|ckpt)\S*\b.*\b(?:saved|written|is ready now)\b|.*\bfinished saving (?:the )?(?:checkpoint|ckpt)\b|.*\b(?:saved|wrote)\b.*(?:checkpoint|ckpt|\.(?:pt|pth|ckpt|safetensors|distcp)\b))){_STEP}{_TOOK}",
        tidy=_step,
    ),
    Line("checkpoint_saving", "local_global_step_folder", r"local_global_step_folder: \S*?global_step_(?P<step>\d+)"),
    Line(
        "checkpoint_saving",
        "is about to be saved",
        rf"(?=.*\b[Cc]heckpoint \S+ is about to be saved){_STEP}",
        tidy=_step,
    ),
    Line(
        "checkpoint_saving",
        "aving",
        rf"^(?!.{{1200}})(?!.*(?i:finished saving|not saving|left to|is saving every|saving \d+%))(?=(?i:.*\bsaving\b.*(?:checkpoint|ckpt|\.(?:pt|pth|ckpt|safetensors)\b|full state|state[ _]dict))){_STEP}",
        tidy=_step,
    ),
    Line(
        "restored",
        ("esum", "estor", "oaded checkpoint", "ontinuing training", "loaded ckpt"),
        rf"^(?!.{{1200}})(?!.*(?i:normal operation|not resum|no checkpoint|resume=|resume:|cannot|fail|signal))(?=(?i:.*\b(?:resum(?:ed|ing)|restor(?:ed|ing)|continuing)\b.*\b(?:from|at|training)\b|.*\bloaded (?:checkpoint|ckpt)\b)){_STEP}",
        tidy=_step,
    ),
)
RESTARTS = (
    Line(
        "restart",
        ("requeue", "Requeu", "re-queue"),
        r"^(?!.{1200})(?!.*(?i:job \d+ requeue|requeue[=:]|no-requeue|--requeue|can be requeued|will not)).*?(?i:re-?queu(?:ed|ing))(?:(?=.*?(?i:attempt|restart)(?: ?[=:#] ?| )(?P<attempt>\d+)))?(?:(?=.*?nodes? (?P<nodes>[A-Za-z][\w,\[\]-]*)))?",
        {"requeue": True},
    ),
    Line(
        "restart",
        ("restart", "Restart"),
        r"^(?!.{1200})(?!.*attempts left)(?!.*[Rr]estart Count).*?(?i:\brestart(?:ing)?(?: (?:attempt|number|worker group|count))?)[ :#]+(?P<attempt>\d+) ?(?:/|of) ?(?P<of>\d+)(?:(?=.*?(?i:from (?:checkpoint )?(?:step|iteration)) (?P<from_step>\d+)))?",
    ),
)
LINES = SUCCESS + CHECKPOINTS + RESTARTS

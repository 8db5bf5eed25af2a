"""Calculators for before a cluster exists or a run starts: offline, with ranges, sources and dates.

Each calculator is a module with `Inputs`, `plan(inputs, catalog)` that returns a typed result, and `answer(result)`
that puts it into sentences, tables, plots and formulas for the renderers:

    from whichrank.plan import catalog, memory
    result = memory.plan(memory.Inputs(model="llama-3.1-8b", gpu="h100", data=8), catalog.load())
    result.verdict, result.peak.likely

Defaults are figures with a source and a date, in data/*.toml; docs/plan/ has a page for each calculator.
"""

# name: its module, and what `whichrank plan --help` says of it
CALCULATORS = {
    "tp": ("whichrank.plan.tensor", "How throughput scales with tensor parallelism, training or serving."),
    "cost": ("whichrank.plan.cost", "What an on-premises cluster costs: bill of materials, yearly, per GPU-hour."),
    "finetune": ("whichrank.plan.finetune", "Full, LoRA and QLoRA side by side: GPU-hours, time, memory, money."),
    "pipeline": ("whichrank.plan.pipeline", "The pipeline bubble, simulated, and how many microbatches mend it."),
    "memory": ("whichrank.plan.memory", "Fits, tight or out, and what takes the room."),
    "timeout": ("whichrank.plan.timeout", "A deliberate limit for collectives, and the code that sets it."),
    "job": ("whichrank.plan.job", "A whole layout: memory, bubble, traffic, checkpoints, failures, limits."),
}

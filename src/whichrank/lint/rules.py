"""The rules: what each finds, why it hangs, what to change, with a sample of both."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rule:
    """says: one line, with {name} (the call, or how it leaves) and {why} (what is a rank's own). fix: what to change."""

    code: str
    name: str
    says: str
    fix: str
    title: str
    why: str
    sample: str
    instead: str
    quiet: str


RULES = (
    Rule(
        "WR101", "collective-under-rank",
        "only some ranks come to `{name}`: a condition on the rank decides",
        "call it on all ranks, and keep under the condition only what one rank has to do",
        "A collective that only ranks of a certain number come to",
        "The ranks that call it wait for the others, which never come: until the timeout, or for ever. Calls that have a "
        "collective in them count: helpers of the file, save_checkpoint and save_state of the frameworks, the state_dict of a "
        "sharded model, compute() of a torchmetrics metric, new_group, the forward of a wrapped model.",
        "if dist.get_rank() == 0:\n    dist.all_reduce(loss)\n    print(loss.item())",
        "dist.all_reduce(loss)\nif dist.get_rank() == 0:\n    print(loss.item())",
        "both branches make the same calls; the group is one of unknown members (`if rank in ranks`)",
    ),
    Rule(
        "WR102", "barrier-under-rank",
        "only some ranks come to `{name}`: a condition on the rank decides",
        "move it out of the condition, or give the other ranks a barrier to meet it",
        "A barrier inside a condition on the rank, without one for the other ranks",
        "The same as WR101, for barriers. Two barriers that belong together, one for the first rank and one for the rest, are "
        "right and stay unmentioned.",
        "if rank == 0:\n    download()\n    dist.barrier()",
        "if rank == 0:\n    download()\ndist.barrier()",
        "each rank comes to as many barriers, wherever they stand",
    ),
    Rule(
        "WR103", "collective-under-data",
        "not all ranks need come to `{name}`: {why} decides, and another rank's may differ",
        "agree first: all_reduce the condition as a number (or broadcast rank 0's), then branch on the result",
        "A collective under a condition on something that is one rank's own",
        "A rank's batch, loss, clock, memory, signals and view of a network file system are its own. Where they decide whether "
        "it takes part in a collective, ranks part company sooner or later.",
        "if loss.item() > limit:\n    dist.all_gather(losses, loss)",
        "spike = (loss.detach() > limit).float()\ndist.all_reduce(spike, op=dist.ReduceOp.MAX)\nif spike.item():\n"
        "    dist.all_gather(losses, loss)",
        "the condition was all-reduced, broadcast or gathered; step counters and configuration; values of which nothing is known",
    ),
    Rule(
        "WR104", "exit-before-collective",
        "this `{name}` is taken by some ranks only ({why} decides), the others go on to a collective",
        "let all ranks leave together: all_reduce or broadcast the decision first; or take part with a value that counts nothing",
        "return, continue, break or raise on a rank's own state or number, with a collective that the others go on to",
        "In a loop, the next iteration's collectives are \"later\" too; so is the backward of a DDP model and the forward of a "
        "sharded one.",
        "for batch in loader:\n    loss = ddp(batch)\n    if torch.isnan(loss):\n        continue\n    loss.backward()",
        "for batch in loader:\n    loss = ddp(batch)\n    loss = torch.nan_to_num(loss)  # or agree, and let all continue\n"
        "    loss.backward()",
        "nothing follows that communicates; the decision was agreed upon; it ends the process by `raise` in an except",
    ),
    Rule(
        "WR105", "exception-skips-collective",
        "a rank that catches an error here goes on without `{name}`, in which the others wait",
        "let the error end the process (`raise`), or note it, take part in what follows, and agree about it afterwards",
        "An except that goes on after an error in a part with collectives, or that leaves a collective out",
        "Only the rank with the error knows of it. The others are in the collective that it left.",
        "try:\n    loss = ddp(batch)\n    loss.backward()\nexcept torch.cuda.OutOfMemoryError:\n    continue",
        "loss = ddp(batch)  # an error ends the job, and the launcher ends the other ranks\nloss.backward()",
        "the handler raises again or exits; ImportError, KeyboardInterrupt, StopIteration and their like",
    ),
    Rule(
        "WR106", "save-without-barrier",
        "one rank writes here, and nothing makes the others wait for it",
        "put a barrier after it on all ranks (with a timeout that the longest save fits in) before they go on or read the file",
        "torch.save by one rank between collectives, or a file that is read by all right after one rank writes it",
        "The others run into their next collective and wait there, against its timeout, for as long as the save takes. Readers "
        "may find half a file.",
        "for epoch in range(epochs):\n    train_epoch(ddp)\n    if rank == 0:\n        torch.save(ddp.module.state_dict(), path)",
        "for epoch in range(epochs):\n    train_epoch(ddp)\n    if rank == 0:\n        torch.save(ddp.module.state_dict(), path)\n"
        "    dist.barrier()",
        "a collective follows in the same iteration; the save comes after the loop; each rank writes a file of its own",
    ),
    Rule(
        "WR107", "uneven-batches",
        "ranks may get unequal numbers of batches here, and each batch has a collective (`{name}`)",
        "drop_last over equal parts, padding (DistributedSampler does), DDP's join(), or an agreed number of steps",
        "A loop with collectives over a part of the data whose length differs by rank",
        "The rank with fewer batches leaves the loop, the others wait for it in their next batch.",
        "loader = DataLoader(rows[rank::world_size])\nfor batch in loader:\n    ddp(batch).backward()",
        "loader = DataLoader(rows, sampler=DistributedSampler(rows))\nfor batch in loader:\n    ddp(batch).backward()",
        "the data is cut or padded to a multiple of the number of ranks, the loop is inside Join or join(), or it ends by a "
        "count",
    ),
    Rule(
        "WR108", "p2p-unpaired",
        "this `{name}` has no counterpart that it can meet: {why}",
        "give each send its recv with matching ranks; of two ranks that swap, one sends first (or use batch_isend_irecv)",
        "send or recv without its counterpart, or both sides in an order that blocks",
        "NCCL's send waits for its recv. The file is followed on four ranks (and two), where the ranks' numbers can be computed.",
        "dist.send(mine, dst=1 - rank)\ndist.recv(theirs, src=1 - rank)",
        "if rank == 0:\n    dist.send(mine, dst=1)\n    dist.recv(theirs, src=1)\nelse:\n    dist.recv(theirs, src=0)\n"
        "    dist.send(mine, dst=0)",
        "a rank's number can't be computed; the counterpart may be in another function",
    ),
    Rule(
        "WR109", "handle-not-waited",
        "nobody waits for the work of this `{name}`",
        "keep what it returns and call wait() on it before the tensor is read, written or freed",
        "An asynchronous collective or send whose work nobody waits for",
        "The tensor may still be on its way when it is used, and an error or hang in it surfaces somewhere else.",
        "dist.all_reduce(gradient, async_op=True)\noptimizer.step()",
        "work = dist.all_reduce(gradient, async_op=True)\nwork.wait()\noptimizer.step()",
        "the work is returned, stored where something reads it, or the device is synchronised afterwards",
    ),
    Rule(
        "WR201", "no-timeout",
        "`init_process_group` without a timeout: the backend's default decides how long a hang costs",
        "give timeout=timedelta(minutes=…): longer than the longest step in which ranks wait for one, no longer",
        "init_process_group without a timeout",
        "NCCL's default is 10 minutes, gloo's 30, whatever the job does. Too short for one rank that prepares data, too long "
        "for a hang on many GPUs.",
        'dist.init_process_group("nccl")',
        'dist.init_process_group("nccl", timeout=timedelta(minutes=15))',
        "options come from `**kwargs`; frameworks that start the group themselves",
    ),
    Rule(
        "WR202", "reentrant-unset",
        "`{name}` without use_reentrant: which way of recomputing applies depends on the version",
        "give use_reentrant=False (gradient_checkpointing_kwargs={\"use_reentrant\": False} for transformers)",
        "Activation checkpointing without use_reentrant",
        "The reentrant way runs a backward inside the backward: with DDP a parameter is then ready twice, or never, and ranks "
        "differ in what they reduce.",
        "hidden = checkpoint(block, hidden)",
        "hidden = checkpoint(block, hidden, use_reentrant=False)",
        "options come from `**kwargs`; a function of the file that only has the name",
    ),
    Rule(
        "WR203", "cache-with-checkpointing",
        "use_cache is on for `{name}`, whose activations are recomputed in training",
        "use_cache=False while training; switch it on for generation only",
        "use_cache switched on in a model that trains with gradient checkpointing",
        "The key-value cache of the first forward meets the recomputed one: other shapes, wrong gradients, or an error on some "
        "ranks only.",
        "model = AutoModel.from_pretrained(name, use_cache=True)\nmodel.gradient_checkpointing_enable(options)",
        "model = AutoModel.from_pretrained(name, use_cache=False)\nmodel.gradient_checkpointing_enable(options)",
        "checkpointing is switched off for generation; under no_grad; use_cache left at its default",
    ),
)  # fmt: skip
BY_NAME = {rule.name: rule for rule in RULES}
BY_CODE = {rule.code: rule for rule in RULES}

"""Dialects of training frameworks: who speaks, what phase a line tells, what the frameworks say of slow and sick ranks."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reading import essence, facts_of, one, survivors

from whichrank.evidence import Evidence, read_piece
from whichrank.facts import Said
from whichrank.findings.activity import activity_of
from whichrank.findings.progress import own_seconds


def said(line: str) -> Said:
    """The line as ordinary talk."""
    evidence = Evidence()
    read_piece("train.log", f"{line}\n".encode(), evidence)
    assert len(evidence.said) == 1, evidence.facts
    return evidence.said[0]


BAR = "  45%|████▌     | 9/20 [00:10<00:12,  0.88it/s]"
PHASES: list[tuple[str | None, str]] = [
    # Megatron-LM
    ("checkpoint", "[2026-07-30 09:30:15.123456] saving checkpoint at iteration     500 to /ckpt in torch_dist format"),
    ("checkpoint", "  [2026-07-30 09:31:02.500000] successfully saved checkpoint from iteration     500 to /ckpt [ t 1/1, p 1/1 ]"),
    (None, "  [2026-07-30 09:31:02.500000] scheduled an async checkpoint save at iteration     500 to /ckpt"),
    ("loading", " loading distributed checkpoint from /ckpt at iteration 500"),
    ("evaluation", "Evaluating iter 3/10"),
    ("evaluation", " validation loss at iteration 1000 | lm loss value: 2.1E+00 | lm loss PPL: 8.2E+00 | "),
    ("preprocess", "> building train, validation, and test datasets for GPT ..."),
    ("preprocess", "INFO:megatron.core.datasets.gpt_dataset:Build and save the GPTDataset train indices"),
    ("compile", ">>> done with compiling and loading fused kernels. Compilation time: 3.1 seconds"),
    (None, " [2026-07-30 09:30:15.120000] iteration      100/  500000 | consumed samples:        25600 | elapsed time per iteration (ms): 1234.5 | learning rate: 1.500000E-05 | lm loss: 7.841219E+00 |"),
    # DeepSpeed
    (None, "[2026-07-30 09:30:15,123] [INFO] [logging.py:96:log_dist] [Rank 0] step=100, skipped=0, lr=[1e-05], mom=[(0.9, 0.95)]"),
    (None, "[2026-07-30 09:30:15,123] [INFO] [timer.py:264:stop] epoch=0/micro_step=100/global_step=100, RunningAvgSamplesPerSec=12.1, CurrSamplesPerSec=12.9, MemAllocated=12.06GB, MaxMemAllocated=41.68GB"),
    ("checkpoint", "[2026-07-30 09:30:15,123] [INFO] [logging.py:96:log_dist] [Rank 0] [Torch] Checkpoint global_step500 is about to be saved!"),
    ("checkpoint", "[2026-07-30 09:30:15,123] [INFO] [torch_checkpoint_engine.py:21:save] [Torch] Saving /ckpt/global_step500/zero_pp_rank_0_mp_rank_00_optim_states.pt..."),
    (None, "steps: 100 loss: 2.3000 iter time (s): 12.340 samples/sec: 20.746"),
    # Hugging Face, LLaMA-Factory, axolotl
    (None, "{'loss': 2.3, 'grad_norm': 1.2, 'learning_rate': 1e-05, 'epoch': 0.1}"),
    ("evaluation", "[INFO|trainer.py:4289] 2026-07-30 09:30:15,123 >> ***** Running Evaluation *****"),
    ("evaluation", "{'eval_loss': 2.1, 'eval_runtime': 12.3, 'eval_samples_per_second': 81.1, 'epoch': 1.0}"),
    ("checkpoint", "[INFO|trainer.py:3942] 2026-07-30 09:30:15,123 >> Saving model checkpoint to out/checkpoint-500"),
    ("preprocess", "Running tokenizer on dataset (num_proc=16):" + BAR),
    ("preprocess", "Converting format of dataset (num_proc=16):" + BAR),
    ("preprocess", "Dropping Long Sequences (num_proc=64):" + BAR),
    ("preprocess", "[2026-07-30 09:30:15,123] [INFO] [axolotl.utils.data.sft._load_raw_datasets:320] [PID:2101] Loading raw datasets..."),
    # Lightning, NeMo
    (None, "Epoch 0:  12%|█▏        | 120/1000 [02:00<14:40,  1.00it/s, v_num=0, train_loss=2.3]"),
    ("evaluation", "Validation DataLoader 0:" + BAR),
    ("evaluation", "Testing DataLoader 0:" + BAR),
    ("checkpoint", "Epoch 0, global step 500: 'val_loss' reached 2.10000 (best 2.10000), saving model to '/ckpt/a.ckpt' as top 3"),
    # torchtitan
    (None, "[titan] 2026-07-30 09:30:15,123 - root - INFO - step: 10  loss:  8.12345  grad_norm:  1.2034  memory: 40.10GiB(50.62%)  tps: 4,321  tflops: 250.10  mfu: 25.29%"),
    ("checkpoint", "[titan] 2026-07-30 09:30:15,123 - root - INFO - Saving the checkpoint (or staging if async is enabled)."),
    ("evaluation", "[titan] 2026-07-30 09:30:15,123 - root - INFO - validate step: 10  loss:  8.1  memory: 40.10GiB(50.62%)  tps: 4,321"),
    # verl, OpenRLHF
    (None, "(TaskRunner pid=1234) step:12 - global_seqlen/mean:81234.5 - actor/entropy_loss:0.31 - timing_s/gen:45.31 - timing_s/step:81.02"),
    ("checkpoint", "(TaskRunner pid=1234) local_global_step_folder: ckpts/x/global_step_20"),
    ("evaluation", "(TaskRunner pid=1234) test_gen_batch meta info: {'eos_token_id': 2}"),
    ("generate", "make_experience:" + BAR),
    (None, "Training Progress:" + BAR),
    # vLLM, SGLang
    ("generate", "Processed prompts:  45%|████▌     | 450/1000 [10:00<12:00,  1.31s/it, est. speed input: 100.20 toks/s, output: 200.10 toks/s]"),
    ("compile", "(VllmWorker TP0 pid=514) INFO 07-30 09:30:15 [backends.py:215] Compiling a graph for dynamic shape takes 31.22 s"),
    ("compile", "Capturing batches (bs=160 avail_mem=9.28 GB):" + BAR),
    # fairseq, Composer
    ("evaluation", '2026-07-30 09:30:15 | INFO | fairseq_cli.train | begin validation on "valid" subset'),
    ("evaluation", "2026-07-30 09:30:15 | INFO | valid | epoch 001 | valid on 'valid' subset | loss 7.1 | ppl 13"),
    (None, '2026-07-30 09:30:15 | INFO | train_inner | {"epoch": 1, "update": 0.1, "loss": "9.1", "num_updates": "1000", "wall": "123"}'),
    (None, "[batch=100/1000]:"),
    ("evaluation", "[Eval batch=45/100] Eval on eval data:"),
]  # fmt: skip


@pytest.mark.parametrize(("phase", "line"), PHASES, ids=[line[:40] for _, line in PHASES])
def test_phase(phase: str | None, line: str) -> None:
    assert activity_of(said(line).text) == phase


CHECKPOINTS: list[tuple[str, str, int | None, float | None]] = [
    ("2026-07-30 09:30:15 | INFO | fairseq.checkpoint_utils | Saved checkpoint ckpts/c.pt (epoch 1 @ 1000 updates, score 7.1) (writing took 12.3 seconds)", "checkpoint_saved", 1000, 12.3),
    ("[titan] 2026-07-30 09:30:15,123 - root - INFO - Finished saving the checkpoint (or staging if async is enabled)in 12.34 seconds.", "checkpoint_saved", None, 12.34),
    ("[2026-07-30 09:30:15,123] [INFO] [torch_checkpoint_engine.py:33:commit] [Torch] Checkpoint global_step500 is ready now!", "checkpoint_saved", 500, None),
    ("[2026-07-30 09:30:15,123] [INFO] [engine.py:3477:_save_zero_checkpoint] zero checkpoint saved /ckpt/global_step500/zero_pp_rank_0_mp_rank_00_optim_states.pt", "checkpoint_saved", 500, None),
    ("[2026-07-30 09:30:15,123] [INFO] [logging.py:96:log_dist] [Rank 0] [Torch] Checkpoint global_step500 is about to be saved!", "checkpoint_saving", 500, None),
    ("(TaskRunner pid=1234) local_global_step_folder: ckpts/x/global_step_20", "checkpoint_saving", 20, None),
]  # fmt: skip


@pytest.mark.parametrize(("line", "kind", "step", "seconds"), CHECKPOINTS)
def test_checkpoints(line: str, kind: str, step: int | None, seconds: float | None) -> None:
    found = [fact for fact in facts_of(line) if fact.kind.startswith("checkpoint")]
    assert [(fact.kind, fact["step"], fact["seconds"]) for fact in found] == [(kind, step, seconds)]


@pytest.mark.parametrize(
    ("line", "want"),
    [
        ("2026-07-30 09:30:15,123: rank3[4101][MainThread]: INFO: composer.trainer.trainer: Run name", (3, None, 4101, None)),
        ("[2026-07-30 09:30:15,123] [INFO] [axolotl.train.train:226] [PID:2101] [RANK:3] Starting trainer...", (None, 3, 2101, None)),
        ("2026-07-30 09:30:15,123 [WARNING] [node-7] [workload:3(1) infra:0(0)] health_check.py:415 all is well", (3, 1, None, "node-7")),
        ("[2026-07-30 09:33:15,123] [WARNING] [RankMonServer3411@node-7:3] FT timeout elapsed.", (3, None, None, "node-7")),
        ("(Worker_TP1 pid=515) INFO 07-12 02:34:56 [gpu_worker.py:30] ready", (1, None, 515, None)),
        ("(VllmWorker TP3 pid=517) INFO 07-12 02:34:56 [gpu_worker.py:30] ready", (3, None, 517, None)),
        ("(Worker_DP1_TP0_EP4 pid=1133) INFO 02-22 23:22:09 [gpu_worker.py:30] ready", (None, None, 1133, None)),
        ("[2026-07-30 09:30:15 TP5] Prefill batch. #new-seq: 1", (5, None, None, None)),
        ("[2026-07-30 09:30:15 PP1 TP0] Prefill batch. #new-seq: 1", (None, None, None, None)),
    ],
)  # fmt: skip
def test_who_speaks(line: str, want: tuple[Any, ...]) -> None:
    who = said(line).who
    assert (who.rank, who.local_rank, who.pid, who.host) == want


def test_axolotl_s_rank_is_the_local_one() -> None:
    line = "[2026-07-30 09:30:15,123] [INFO] [axolotl.train.train:226] [PID:2101] [RANK:3] Starting trainer..."
    assert not [fact for fact in facts_of(line) if fact.kind == "member"]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (" iteration 100/ 5000 | elapsed time per iteration (ms): 1234.5 | learning rate: 1.5E-05 |", 1.2345),
        ("steps: 100 loss: 2.3000 iter time (s): 12.340 samples/sec: 20.746", 12.34),
        ("step:12 - timing_s/gen:45.31 - timing_s/step:81.02", 81.02),
        ("step 7 step_time: 812 ms", 0.812),
        ("step 7 step_time: 812 it/s", None),
        ("elapsed time since start: 1 h", None),
    ],
)
def test_seconds_of_a_step(text: str, seconds: float | None) -> None:
    assert own_seconds(text) == (pytest.approx(seconds) if seconds is not None else None)


TIMERS = """(min, max) time across ranks (ms):
    forward-backward ...............................: (1204.30, 1391.02)
    forward-recv ...................................: (2.10, 9804.11)
    batch-generator ................................: (3.12, 48211.53)
    optimizer ......................................: (40.10, 41.20)""".splitlines()
EACH = """times across ranks (ms):
  forward-compute:
     rank  0: 1204.30
     rank  1: 1209.11
     rank  2: 4810.52
     rank  3: 1201.90
  batch-generator:
     rank  0: 3.12
     rank  1: 3.10
     rank  2: 3.44
     rank  3: 3.09""".splitlines()
SCORES = """GPU relative performance:
 Worst performing 2/512 ranks:
  Rank=76 Node=h100-001-253-012 Score=0.61
  Rank=13 Node=h100-001-010-003 Score=0.94
 Best performing 2/512 ranks:
  Rank=432 Node=h100-004-141-026 Score=0.99
  Rank=376 Node=h100-004-005-003 Score=0.98""".splitlines()
STRAGGLERS = "0: INFO:megatron.core.utils:[2024-03-14 23:07:56] | MnRtt/Rnk: 3453.08ms/8 | MxRtt/Rnk: 5468.20ms/3 | MnPwr/Rnk: 601796W/8 | MxPwr/Rnk: 683801W/18 | MnTmp/Rnk: 52C/0 | MxTmp/Rnk: 65C/21 | MnUtl/Rnk: 97%/8 | MxUtl/Rnk: 100%/6 | MnClk/Rnk: 1110MHz/3 | MxClk/Rnk: 1980MHz/0 | MnDRtt/Rnk: 14.27ms/23 | MxDRtt/Rnk: 34.65ms/3 | MnEtpt/Rnk: 196.02TF/3 | MxEtpt/Rnk: 297.32TF/8"


def test_timers_over_all_ranks() -> None:
    found = [fact for fact in facts_of("\n".join(TIMERS)) if fact.kind == "rank_extremes"]
    assert [(fact["name"], fact["low"], fact["high"], fact["high_rank"]) for fact in found] == [("batch-generator", 3.12, 48211.53, None)]  # fmt: skip
    joined = "(min, max) time across ranks (ms): save-checkpoint ................................: (4895.07, 24895.13)"
    assert one(joined, "rank_extremes")["high"] == 24895.13


def test_timers_of_each_rank() -> None:
    fact = one("\n".join(EACH), "rank_extremes")
    assert (fact["name"], fact["high_rank"], fact["high"], fact["low_rank"]) == ("forward-compute", 2, 4810.52, 3)
    assert fact.spot.excerpt == "rank  2: 4810.52"


def test_straggler_detector_of_megatron() -> None:
    found = {fact["name"]: fact for fact in facts_of(STRAGGLERS) if fact.kind == "rank_extremes"}
    assert {name: (fact["low_rank"], fact["high_rank"]) for name, fact in found.items()} == {"Rtt": (8, 3), "Clk": (3, 0), "Etpt": (3, 8)}  # fmt: skip
    lowest = one("^^^^ Bottom 2 Ranks with lowest  Etpt(TF): 196.02/3, 296.10/9,", "straggler_hint")
    assert (lowest["ranks"], lowest["scores"]) == ([3, 9], [196.02, 296.1])


def test_scores() -> None:
    found = [
        (fact.rank, fact.who.host, fact["score"]) for fact in facts_of("\n".join(SCORES)) if fact.kind == "rank_score"
    ]
    assert found[0] == (76, "h100-001-253-012", 0.61)
    assert len(found) == 4


LINES: list[tuple[str, str, dict[str, Any]]] = [
    ("STRAGGLER DETECTION WARNING: Some GPUs have worse relative performance. Affected ranks: {StragglerId(rank=3, node='h3')}", "straggler_hint", {"ranks": [3], "what": "relative"}),
    ("STRAGGLER DETECTION WARNING: Some GPUs performance dropped. Affected ranks: [162, 79, 357]", "straggler_hint", {"ranks": [162, 79, 357], "what": "individual"}),
    ("[WARNING] [RankMonitorServer:34] Did not get subsequent heartbeat. Waited 171.92 seconds.", "heartbeat_missed", {"rank": 34, "seconds": 171.92, "section": None}),
    ("[2026-07-30 09:33:15,123] [WARNING] [RankMonServer3411@node-7:3] Section 'step' has been open for 901.20 seconds. Timeout is 900.00 seconds.", "heartbeat_missed", {"rank": 3, "host": "node-7", "section": "step"}),
    ("[2026-07-30 09:33:15,123] [WARNING] [RankMonServer3411@node-7:3] Was out of section for 301.20 seconds. Timeout is 300.00 seconds.", "heartbeat_missed", {"rank": 3, "section": "none"}),
    ("2026-07-30 09:30:15,123 [WARNING] [node-7] [workload:3(3) infra:0(0)] health_check.py:415 GPU 3: Requires a node reboot to recover. Reboot the system.", "health_failed", {"what": "gpu", "index": 3, "host": "node-7"}),
    ("NIC device mlx5_2: Port state changed from ACTIVE to DOWN. Health check FAILED.", "health_failed", {"what": "nic", "device": "mlx5_2"}),
    ("ERROR:megatron.core.rerun_state_machine:Rank 5, node h5, device 5, iteration #1201: Possible persistent error!", "result_check", {"rank": 5, "host": "h5", "verdict": "persistent", "step": 1201}),
    ("WARNING:megatron.core.rerun_state_machine:Rank 5, node h5, device 5, iteration 1201: Unexpected result nan (message='found NaN in local grad norm')", "result_check", {"rank": 5, "verdict": "unexpected"}),
    ("(EngineCore_DP0 pid=333) INFO 02-22 23:21:42 [shm_broadcast.py:548] No available shared memory broadcast block found in 60 seconds. This typically happens when some processes are hanging or doing some time-consuming work", "engine_waits", {"seconds": 60, "by": "vllm"}),
    ("[2026-07-30 09:30:15 TP0] Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)", "engine_waits", {"seconds": 300, "by": "sglang"}),
    ("(EngineCore pid=1709) ERROR 06-01 17:32:04 [multiproc_executor.py:283] Worker proc VllmWorker-0 died unexpectedly, shutting down executor.", "engine_death", {"name": "Worker proc VllmWorker-0"}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("line", "kind", "want"), LINES, ids=[f"{number}-{kind}" for number, (_, kind, _) in enumerate(LINES)]
)
def test_health(line: str, kind: str, want: dict[str, Any]) -> None:
    fact = one(line, kind)
    assert {name: getattr(fact.who, name) if name in ("rank", "host") else fact[name] for name in want} == want


HEALTH = {"straggler_hint", "rank_score", "rank_extremes", "heartbeat_missed", "health_failed", "result_check", "engine_waits", "engine_death"}  # fmt: skip


@pytest.mark.parametrize(
    "line",
    [
        "config: straggler_detection=true, heartbeat_timeout=180",
        "The door has been open for 3 seconds",
        "GPU 3: driver requires a reset to be recovered later",
        "[NeMo W 2026-07-30 09:30:15 nemo_logging:405] straggler detection is off",
        "Rank=3 Node=h Score=0.5",
        "WARNING: some ranks with lowest loss are logged",
    ],
)
def test_no_health(line: str) -> None:
    assert not [fact for fact in facts_of(line) if fact.kind in HEALTH]


def test_tables_of_even_ranks_cost_nothing() -> None:
    table = "\n".join(TIMERS[:2])
    assert not [fact for fact in facts_of("\n".join([table] * 500)) if fact.kind == "rank_extremes"]


@settings(max_examples=30, deadline=None)
@given(
    st.integers(0, 10_000), st.sampled_from([TIMERS, EACH, SCORES, [STRAGGLERS[3:]], [line for line, _, _ in LINES]])
)
def test_facts_survive_what_happens_to_other_lines(seed: int, lines: list[str]) -> None:
    plain = {essence(fact) for fact in facts_of("\n".join(lines)) if fact.kind in HEALTH}
    assert plain
    labelled = [f"[rank0]: {line}" for line in lines] if lines in (TIMERS, EACH, SCORES) else lines
    if labelled is not lines:
        plain = {essence(fact) for fact in facts_of("\n".join(labelled)) if fact.kind in HEALTH}
    assert {repr(fact) for fact in plain} <= survivors(labelled, seed)

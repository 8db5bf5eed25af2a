"""Each calculator's own sense: what must grow with what, and the words for what cannot be."""

from __future__ import annotations

import ast
import math
from pathlib import Path

import pytest
from asking import answer, figures, plan

from whichrank.errors import UsageProblem
from whichrank.plan import fabric, serving, storage, timeout, tokens
from whichrank.plan.collectives import all_reduce, bus_bandwidth, links
from whichrank.plan.hardware import gpu
from whichrank.plan.models import preset_or_file
from whichrank.plan.quantities import Range

# --- tensor parallelism


def test_training_efficiency_falls_and_crossing_the_domain_hurts_more() -> None:
    rows = plan("tp", {"sizes": "1,2,4,8,16", "sequence": "8192"}).rows
    per_gpu = [row.per_gpu.likely for row in rows]
    assert per_gpu == sorted(per_gpu, reverse=True)
    assert [row.crosses for row in rows] == [False] * 4 + [True]
    assert per_gpu[4] / per_gpu[3] < per_gpu[3] / per_gpu[2]


def test_narrow_matrices_cost_beyond_communication() -> None:
    """With communication fully hidden, t = 8 is still less than 8 times as fast."""
    rows = plan("tp", {"sizes": "1,8", "overlap": "100%"}).rows
    assert rows[1].communication == 0
    assert rows[1].throughput.likely / rows[0].throughput.likely < 7.9


def test_serving_grows_more_than_linearly_where_the_cache_starves() -> None:
    given = {
        "mode": "serving",
        "model": "llama-3.1-70b",
        "precision": "fp8",
        "input_tokens": "128",
        "output_tokens": "2048",
    }
    found = plan("tp", given)
    assert found.rows[1].throughput.likely > 4 * found.rows[0].throughput.likely
    assert found.rows[0].fits == "tight"
    assert any("few sequences" in warning for warning in found.warnings)
    roomy = plan("tp", {**given, "gpu": "h200"})
    assert roomy.rows[1].throughput.likely < 2 * roomy.rows[0].throughput.likely


def test_serving_says_when_nothing_fits() -> None:
    found = answer("tp", {"mode": "serving", "model": "llama-3.1-405b", "gpu": "4090"})
    assert found.says[0].startswith("None of t = 1, 2, 4, 8 fits")


def test_ranges_of_inputs_widen_the_answer() -> None:
    narrow, wide = (plan("tp", {"sizes": "16", "nic": nic}).rows[0].throughput for nic in ("100Gb/s", "50Gb/s-200Gb/s"))
    assert wide.low < narrow.low and wide.high > narrow.high
    steps = [plan("job", {"nic": nic, "tokens": "1T"}) for nic in ("100Gb/s", "25Gb/s-400Gb/s")]
    assert steps[1].step.high > steps[0].step.high and steps[1].days.high > steps[0].days.high
    hours = plan("finetune", {"tokens": "40M-60M"}).methods[0].gpu_hours
    assert hours.width > 1.5
    overlapped = plan("tp", {"sizes": "8", "overlap": "0%-80%"}).rows[0].seconds
    assert overlapped.width > plan("tp", {"sizes": "8"}).rows[0].seconds.width


def test_tensor_sizes_have_to_divide_the_heads() -> None:
    with pytest.raises(UsageProblem, match="32 attention heads"):
        plan("tp", {"sizes": "3"})


# --- memory


def test_memory_grows_with_the_batch_and_shrinks_with_shards() -> None:
    def peak(**given: str) -> float:
        found: float = plan("memory", given).peak.likely
        return found

    assert peak(microbatch="2") > peak(microbatch="1")
    assert peak(data="8") < peak(data="1")
    assert peak(recompute="full") < peak(recompute="op") < peak(recompute="none")
    assert peak(method="qlora") < peak(method="lora") < peak(method="full")
    assert peak(tensor="8", states="megatron") < peak(tensor="2", states="megatron")


def test_interleaving_keeps_more_activations() -> None:
    given = {"pipeline": "4", "microbatches": "16", "tensor": "8", "states": "megatron", "model": "llama-3.1-70b"}
    assert plan("memory", {**given, "chunks": "4"}).parts.activations > plan("memory", given).parts.activations


def test_states_per_parameter() -> None:
    found = plan("memory", {"states": "megatron"})
    states = found.parts.weights + found.parts.gradients + found.parts.optimizer
    assert states / found.model.parameters == pytest.approx(18)
    shared = plan("memory", {"states": "megatron", "data": "12"})
    states = shared.parts.weights + shared.parts.gradients + shared.parts.optimizer
    assert states / found.model.parameters == pytest.approx(6 + 12 / 12)


def test_checkpointing_is_offered_with_its_price() -> None:
    found = answer("memory", {"data": "8", "microbatch": "4", "sequence": "4096", "gpu": "a100", "chunked_loss": True})
    assert "recompute=op it fits" in found.says[1] and "more time" in found.says[1]


# --- fabric and cost


@pytest.mark.parametrize("gpus", [8, 64, 512, 520, 2048, 4096, 8192, 65536])
def test_fat_tree_has_ports_for_every_gpu(gpus: int) -> None:
    net = fabric.build("fat-tree", gpus, 8, 64)
    assert net.leaf * 32 >= gpus
    assert net.leaf % 8 == 0
    assert net.transceivers == 2 * sum(net.cables)
    assert net.tiers == (2 if gpus <= 2048 else 3)
    if net.tiers == 2:
        assert net.spine * 64 >= net.leaf * 32


@pytest.mark.parametrize(
    ("nodes", "leaf", "spine"), [(72, 8, 4), (144, 16, 8), (288, 32, 18), (576, 64, 36), (1296, 144, 72)]
)
def test_spines_share_a_leafs_uplinks_evenly(nodes: int, leaf: int, spine: int) -> None:
    """DGX SuperPOD reference architecture, B300 XDR, switches of 144 ports."""
    net = fabric.build("fat-tree", 8 * nodes, 8, 144)
    assert (net.leaf, net.spine, net.core) == (leaf, spine, 0)


def test_topologies_say_how_far_they_reach() -> None:
    assert fabric.build("rail-only", 512, 8, 64).switches == 8
    for topology, gpus in (("rail-only", 1024), ("fat-tree", 100_000), ("rails", 200_000)):
        with pytest.raises(UsageProblem, match="not"):
            fabric.build(topology, gpus, 8, 64)
    assert fabric.build("dual-plane", 4096, 8, 64).tiers < fabric.build("fat-tree", 4096, 8, 64).tiers


def test_network_cards_are_not_counted_twice() -> None:
    found = plan("cost", {})
    assert not any("NIC" in item.name or "card" in item.name for item in found.items)
    assert "network cards included" in found.items[0].basis
    assert found.capital.likely == pytest.approx(sum(item.cost.likely for item in found.items))
    assert found.per_gpu.likely == pytest.approx(found.capital.likely / 512)


def test_hall_only_where_asked() -> None:
    assert plan("cost", {"facility": "tokyo"}).capital.likely > plan("cost", {"facility": "frankfurt"}).capital.likely
    assert plan("cost", {"facility": "frankfurt"}).capital.likely > plan("cost", {}).capital.likely


def test_partly_filled_servers_are_counted_whole() -> None:
    found = plan("cost", {"gpus": "100"})
    assert found.nodes == 13
    assert "counted 104" in found.warnings[0]


def test_no_price_is_no_guess() -> None:
    with pytest.raises(UsageProblem, match="--node-price"):
        plan("cost", {"gpu": "mi300x"})


# --- fine-tuning


def test_costs_scale_with_tokens_and_epochs() -> None:
    one, three = (plan("finetune", {"tokens": "10M", "epochs": epochs}) for epochs in ("1", "3"))
    for first, third in zip(one.methods, three.methods, strict=True):
        assert third.gpu_hours.likely == pytest.approx(3 * first.gpu_hours.likely)


def test_qlora_is_slower_than_lora_and_smaller() -> None:
    _, lora, qlora = plan("finetune", {"tokens": "1M", "gpu": "4090", "gpus": "1"}).methods
    assert qlora.per_gpu.likely < lora.per_gpu.likely
    assert qlora.peak < lora.peak


def test_lora_is_not_always_faster() -> None:
    found = plan("finetune", {"tokens": "1M", "sequence": "64", "gpus": "1", "eager": True, "accumulate": "64"})
    assert any("hardly faster" in warning for warning in found.warnings)


def test_what_fits_on_what() -> None:
    found = plan("finetune", {"tokens": "1M", "model": "llama-3.1-8b"})
    fits = {fit.gpu: fit.ways for fit in found.fits}
    assert fits["4090"][0] == "" and fits["4090"][2] != ""
    assert all(fits["h200"])


def test_tokens_of_files(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"prompt": "abcd", "answer": ["efgh", 3]}\nnot json\n', encoding="utf-8")
    (tmp_path / "a.txt").write_text("x" * 400, encoding="utf-8")
    (tmp_path / "a.bin").write_bytes(bytes(200))
    assert tokens.count_tokens(tmp_path / "a.jsonl") == (8 + 9) / 4
    assert tokens.count_tokens(tmp_path / "a.txt") == 100
    assert tokens.count_tokens(tmp_path / "a.bin") == 100
    (tmp_path / "a.parquet").write_bytes(b"PAR1\0\0")
    with pytest.raises(UsageProblem, match="--tokens"):
        tokens.count_tokens(tmp_path / "a.parquet")
    with pytest.raises(UsageProblem, match="cannot read"):
        tokens.count_tokens(tmp_path / "none")
    found = plan("finetune", {"dataset": str(tmp_path / "a.txt")})
    assert found.tokens == Range.exactly(100) and any("characters / 4" in warning for warning in found.warnings)


def test_finetune_wants_tokens() -> None:
    with pytest.raises(UsageProblem, match="--tokens"):
        plan("finetune", {})
    with pytest.raises(UsageProblem, match="not both"):
        plan("finetune", {"tokens": "1M", "dataset": "x"})


# --- timeouts


def test_limits_cover_what_is_waited_for() -> None:
    found = plan("timeout", {"model": "llama-3.1-70b", "file_system": "10GB/s"})
    slowest = max(phase.expected.likely for phase in found.phases if phase.when == "steady")
    assert found.steady >= 2 * slowest
    assert found.first >= found.steady >= found.floor > 34


def test_rank0_work_gets_its_own_group_not_a_longer_limit() -> None:
    found = plan("timeout", {"rank0": "87min"})
    assert found.alone and found.alone > 87 * 60
    assert found.steady < 600
    assert 'backend="gloo"' in found.code
    assert any("hide every real hang" in warning for warning in found.warnings)


@pytest.mark.parametrize(("torch", "lowers"), [("2.4", True), ("2.0", False)])
def test_code_is_python_for_that_version(torch: str, lowers: bool) -> None:
    found = plan("timeout", {"torch": torch, "rank0": "1h"})
    ast.parse(found.code)
    assert ("_set_pg_timeout" in found.code) is lowers
    assert "do not inherit" in found.code


def test_default_of_old_versions() -> None:
    assert plan("timeout", {"torch": "2.1"}).default == 1800
    assert plan("timeout", {"torch": "2.2.1"}).default == 600


def test_measured_phases_replace_estimates() -> None:
    inputs = timeout.Inputs(model="llama-3.1-8b")
    slow = timeout.plan(inputs, figures(), measured={"checkpoint": Range.exactly(600.0)})
    assert slow.steady > 1200
    assert next(phase for phase in slow.phases if phase.name == "checkpoint").basis == "measured in the run"


def test_a_killer_that_comes_first_is_named() -> None:
    found = plan("timeout", {"killed_after": "5min", "rank0": "1h"})
    assert any("kills the job" in warning for warning in found.warnings)


# --- collectives, storage, jobs


def test_all_reduce_bandwidth_by_level() -> None:
    book = figures().book()
    kind = gpu("h100", book)
    on = links(kind, book)
    inside = bus_bandwidth(2**33, 8, all_reduce(2**33, 8, 8, on))
    across = bus_bandwidth(2**33, 64, all_reduce(2**33, 64, 8, on))
    assert 4.5e11 < inside < 5.2e11
    assert 2e11 < across < inside
    assert all_reduce(8, 8, 8, on) < 100e-6
    assert all_reduce(2**30, 1, 8, on) == 0


def test_young_and_daly() -> None:
    young, daly = storage.young_daly(60.0, 86400.0)
    assert young == pytest.approx(math.sqrt(2 * 60 * 86400))
    assert daly == pytest.approx(young - 60, rel=0.02)
    assert storage.young_daly(100.0, 40.0)[1] == 40.0


def test_failures_grow_with_nodes_at_the_published_rate() -> None:
    found = storage.failures(2048, 60.0, figures().book())
    assert found.per_week.likely * 54 / 7 == pytest.approx(419, rel=0.01)  # Llama 3: 419 in 54 days
    assert found.per_week.low < found.per_week.likely < found.per_week.high


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"gpus": "100"}, "not 100 GPUs"),
        ({"experts": "3"}, "has to divide"),
        ({"experts": "8"}, "expert"),
        ({"tensor": "7"}, "attention heads"),
        ({"pipeline": "100"}, "80 layers"),
    ],
)
def test_impossible_layouts_are_refused(given: dict[str, str], word: str) -> None:
    with pytest.raises(UsageProblem, match=word):
        plan("job", given)


def test_poor_layouts_are_warned_of() -> None:
    def warned(**given: str) -> str:
        return " ".join(plan("job", given).warnings)

    assert "NVLink domain" in warned(tensor="16", pipeline="1", data="1")
    assert "bubble" in warned(pipeline="8", microbatches="8")
    assert "uneven" in warned(model="llama-3.1-405b", pipeline="8")
    assert "memory: out" in warned(tensor="1", pipeline="1", data="1")


def test_a_faster_network_never_slows_a_job() -> None:
    steps = [plan("job", {"nic": nic}).step.likely for nic in ("25Gb/s", "100Gb/s", "400Gb/s", "800Gb/s")]
    assert steps == sorted(steps, reverse=True)


def test_timeout_of_a_job_is_that_of_the_calculator() -> None:
    found = plan("job", {"file_system": "10GB/s"})
    size = f"{found.checkpoint.size}B"
    own = plan(
        "timeout",
        {"gpus": str(found.gpus), "checkpoint": size, "writers": "32", "file_system": "10GB/s", "groups": "5",
         "all_reduce": f"{max(each.size for each in found.collectives)}B"},
    )  # fmt: skip
    assert (own.first, own.steady) == (found.first_timeout, found.steady_timeout)


def test_an_empty_data_set_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").touch()
    with pytest.raises(UsageProblem, match="no tokens"):
        answer("finetune", {"dataset": str(tmp_path / "empty.txt")})


def test_counts_beyond_reason_are_refused() -> None:
    with pytest.raises(UsageProblem, match="beyond reason"):
        answer("tp", {"sequence": "1e30"})


def test_ranks_beyond_the_heads_of_keys_copy_the_cache() -> None:
    """Qwen2.5 7B has 4 heads of keys and values: 8 ranks keep each of them twice."""
    book = figures().book()
    model = preset_or_file("qwen2.5-7b", book)
    load = serving.Load(1000, 1000, 0, 0, 2.0, 2.0)
    assert serving.token_bytes(model, load, 4) == model.kv_bytes(2.0)
    assert serving.token_bytes(model, load, 8) == 2 * model.kv_bytes(2.0)

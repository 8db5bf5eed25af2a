"""Names from the field: collectives by framework, ranks and their predicates, what is a rank's own, batches.

Sources: torch 2.8 (torch.distributed, checkpoint, fsdp, nn.parallel), accelerate 1.10, lightning 2.5, transformers 4.56,
deepspeed 0.17, torchmetrics 1.8, Megatron core 0.14. A name alone counts only where it can be nothing else; words such as
"reduce" or "save" count on a receiver or in a module that is known.
"""

from __future__ import annotations

import re

TORCH = "torch.distributed."
BARRIERS = frozenset({"barrier", "monitored_barrier", "wait_for_everyone"})

# Collectives on whatever they are called: nothing else has such a name.
ANYWHERE = frozenset(
    [
        "all_reduce",
        "allreduce",
        "all_gather",
        "allgather",
        "all_gather_object",
        "all_gather_into_tensor",
        "all_gather_coalesced",
        "all_reduce_coalesced",
        "all_to_all",
        "all_to_all_single",
        "reduce_scatter",
        "reduce_scatter_tensor",
        "broadcast_object_list",
        "gather_object",
        "scatter_object_list",
        "barrier",
        "monitored_barrier",
        "wait_for_everyone",
        "gather_for_metrics",
        "pad_across_processes",
        "consolidate_state_dict",
        "sync_and_compute",
        "get_synced_metric",
        "main_process_first",
        "local_main_process_first",
        "summon_full_params",
        "full_optim_state_dict",
        "sharded_optim_state_dict",
        "save_16bit_model",
        "full_tensor",
        "collect_results",
        "collect_results_cpu",
        "collect_results_gpu",
        "sync_random_seed",
        "GatheredParameters",
        "save_fp16_model",
        "rendezvous",
    ]
)
# Collectives in torch.distributed, and in modules with the same interface.
FUNCTIONS = frozenset(
    [
        "broadcast",
        "reduce",
        "gather",
        "scatter",
        "new_group",
        "new_subgroups",
        "new_subgroups_by_enumeration",
        "split_group",
        "init_process_group",
        "init_device_mesh",
    ]
)
DISTRIBUTED = re.compile(
    r"^(torch\.distributed|deepspeed\.comm|accelerate\.utils|horovod|torch_xla\.core\.xla_model|mmengine\.dist)\."
    r"|(^|\.)(comm|dist|distributed|dist_utils|distributed_utils|comm_utils)\.\w+$"
)
ASYNC = frozenset(["isend", "irecv"])

# Calls of all ranks, by what they are called on.
METHODS = {
    "accelerator": frozenset(
        [
            "gather",
            "reduce",
            "save_state",
            "load_state",
            "save_model",
            "get_state_dict",
            "clip_grad_norm_",
            "backward",
            "prepare",
            "broadcast",
            "save",
            "load",
            "all_gather",
            "setup",
            "clip_gradients",
        ]
    ),
    "engine": frozenset(["save_checkpoint", "load_checkpoint", "backward", "step", "train_batch", "eval_batch"]),
    "trainer": frozenset(["save_checkpoint", "fit", "validate", "test", "predict"]),
    "hf-trainer": frozenset(["train", "evaluate", "predict"]),
}
ENGINES = frozenset(["engine", "model_engine", "ds_engine", "deepspeed_engine"])
STRATEGY = frozenset(["barrier", "broadcast", "reduce", "all_gather", "save_checkpoint", "reduce_boolean_decision"])
CALLS_OF_ALL = re.compile(
    r"torch\.distributed\.checkpoint\.(save|load|async_save|save_state_dict|load_state_dict)$"
    r"|torch\.distributed\.checkpoint\.[\w.]+\.(save|load|async_save|save_state_dict|load_state_dict)$"
    r"|torch\.distributed\.checkpoint\.state_dict\.(get|set)_\w*state_dict$"
    r"|torch\.distributed\.fsdp\..*(optim_state_dict|full_optim_state_dict)$"
    r"|megatron\..*\.(save_checkpoint|load_checkpoint|dist_checkpointing\.(save|load))$"
    r"|ray\.(train|air\.session)\.report$"
    r"|torch\.distributed\.nn\.(functional\.)?(all_reduce|all_gather|broadcast|reduce_scatter)$"
    r"|torch\.distributed\.tensor\.(\w+\.)?distribute_(tensor|module)$"
)
ZERO_3 = re.compile(r"stage\W{1,8}3\b|stage_?3|zero_?3|ZeRO-?3", re.I)
WRAPPERS = {
    "DistributedDataParallel": "ddp",
    "LegacyDistributedDataParallel": "ddp",
    "FullyShardedDataParallel": "fsdp",
    "fully_shard": "sharded",
}

# Ranks
RANK_VARIABLES = {
    "RANK": "rank",
    "SLURM_PROCID": "rank",
    "OMPI_COMM_WORLD_RANK": "rank",
    "PMI_RANK": "rank",
    "LOCAL_RANK": "local",
    "SLURM_LOCALID": "local",
    "OMPI_COMM_WORLD_LOCAL_RANK": "local",
    "MPI_LOCALRANKID": "local",
}
WORLD_VARIABLES = frozenset(["WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE"])
RANK_NAMES = {
    **dict.fromkeys(
        [
            "rank",
            "global_rank",
            "process_index",
            "world_rank",
            "rank_id",
            "proc_id",
            "process_id",
            "ddp_rank",
            "my_rank",
            "rank_idx",
        ],
        "rank",
    ),
    **dict.fromkeys(["local_rank", "local_process_index", "ddp_local_rank", "gpu", "gpu_id", "local_gpu"], "local"),
}
RANK_CALLS = {
    "get_rank": "rank",
    "get_local_rank": "local",
    "local_rank": "local",
    "Get_rank": "rank",
    "get_ordinal": "rank",
    "current_device": "local",
}
WORLD_NAMES = frozenset(["world_size", "get_world_size", "num_processes", "ddp_world_size", "n_ranks", "num_ranks"])
FIRST = re.compile(
    r"^_?is_((global|local|world|dist|node)_)?"
    r"(rank_?(zero|0)|(main|master|chief|primary|leader)(_(rank|process|proc|worker|node))?|(root|first|zero)_(rank|process|proc))$"
    r"|^_?is_(global|local)_zero$|^_?is_(world|local)_process_zero$|^is_master_ordinal$|^is_(global|local)_main_process$"
    r"|^(main|master)_process$|^should_save$"
)
LAST = frozenset(["is_last_process", "is_last_rank"])
FIRST_ONLY = re.compile(
    r"(^|[._])(rank_zero_only|on_main_process|on_local_main_process|main_process_only|master_only|rank0_only|only_main"
    r"|run_on_main|run_on_rank0|rank_zero|only_on_rank_0|on_rank_zero)$"
)
DIMENSIONS = (
    ("tp", re.compile(r"tensor|(^|_)tp(_|$)")),
    ("pp", re.compile(r"pipeline|(^|_)pp(_|$)")),
    ("cp", re.compile(r"context|sequence|(^|_)[cs]p(_|$)")),
    ("ep", re.compile(r"expert|(^|_)ep(_|$)")),
    ("dp", re.compile(r"data|(^|_)dp(_|$)")),
)

# A rank's own
CLOCK = re.compile(
    r"^time\.(time|monotonic|perf_counter|process_time|time_ns|monotonic_ns|perf_counter_ns)$|(^|\.)datetime\.(now|utcnow|today)$"
)
FILES = re.compile(
    r"^os\.path\.(exists|isfile|isdir|lexists|getsize|getmtime)$|^os\.(access|stat)$|^shutil\.disk_usage$"
)
WRITERS = re.compile(r"download|prepare|preprocess|convert|write|dump|export|tokeni[sz]e|extract|build|create|save")
FILE_METHODS = frozenset(["exists", "is_file", "is_dir", "stat", "lstat"])
HOST = re.compile(r"^subprocess\.(run|check_output|getoutput|call)$|^socket\.gethostname$|^platform\.node$")
LISTINGS = re.compile(r"^os\.(listdir|scandir)$|^glob\.i?glob$")
RANDOM = re.compile(
    r"^random\.(random|randint|randrange|choice|uniform)$|^numpy\.random\.(rand|random|randint|uniform|choice)$"
)
THREADS = frozenset(["is_set", "empty", "qsize", "poll", "is_alive"])
KEEP_LISTING = frozenset(
    [
        "sorted",
        "list",
        "len",
        "max",
        "min",
        "any",
        "all",
        "bool",
        "next",
        "iter",
        "tuple",
        "set",
        "glob",
        "rglob",
        "iterdir",
    ]
)
MEMORY = re.compile(
    r"^torch\.cuda\.(memory_allocated|memory_reserved|max_memory_allocated|max_memory_reserved|mem_get_info|utilization|temperature)$"
    r"|^torch\.cuda\.(power_draw|clock_rate)$|^psutil\.|^pynvml\."
)
BATCH = re.compile(
    r"(^|_)(loss|losses|batch|batches|masks?|labels?|targets?|logits|images?|pixel_values|boxes|rewards?|advantages"
    r"|gradients?|grads|input_ids|hidden_states|frames|audio)($|_)"
)
MAYBE_BATCH = re.compile(r"(^|_)(inputs?|outputs?|features|samples?|examples?|tokens|prompts?|sequences?)($|_)")
STEP = re.compile(r"forward|step|loss|train|__call__|observe|update|fit|eval|valid|criterion")
NOT_BATCH = re.compile(
    r"^target_|(^|_)(fn|func|function|size|sizes|num|n|max|min|weights?|scale|per|ratio|rate|names?|path|paths|dir|type|dtype|dim|use"
    r"|return|with|is|has|do|every|limit|threshold|factor|steps?|interval|eps|coef|alpha|mode|config|cfg|keys?|files?"
    r"|smoothing|class|module|model|total|columns?|loader|sampler|dataset|shape|id|index|idx|count|length|len|seen|norm"
    r"|sync|consumed|processed|trained|skipped|done|format|template|output_dir|args|kwargs|processor|log|logger|by|to|at|in|on|reduction|accumul\w*|world|global|avg)($|_)"
)
MAY_LACK = re.compile(r"(^|_)(pixel|images?|audio|video|vision|visual|speech|boxes|pixels|frames|waveforms?)($|_)")
ITERATED = re.compile(
    r"(^|_)(loader|dataloader|batches|stream|dl)$|loader$|^batch_iter|^data_iter|^(train|val|test|eval)_data$"
)
AGREED = re.compile(
    r"flag|stop|should|agreed|global|total|reduced|avg|average|mean|sum|sync|norm|step|count|model|net|module|done|finished"
)
AGREES = re.compile(
    r"reduce|gather|broadcast|sync|agree|average|avg|consensus|across|global|world|dist_|_dist|all_ranks|everyone|collective"
)
VALUES = frozenset(
    [
        "item",
        "any",
        "all",
        "sum",
        "max",
        "min",
        "mean",
        "nonzero",
        "numel",
        "isnan",
        "isinf",
        "isfinite",
        "tolist",
        "argmax",
        "argmin",
        "norm",
        "allclose",
        "equal",
        "count_nonzero",
    ]
)
SHAPES = frozenset(
    ["shape", "size", "dim", "ndim", "dtype", "device", "is_cuda", "stride", "is_floating_point", "element_size"]
)
HARMLESS = frozenset(
    [
        "ImportError",
        "ModuleNotFoundError",
        "KeyboardInterrupt",
        "StopIteration",
        "AttributeError",
        "NotImplementedError",
        "TypeError",
        "SystemExit",
        "GeneratorExit",
    ]
)
PARSING = frozenset(
    [
        "OverflowError",
        "ZeroDivisionError",
        "KeyError",
        "ValueError",
        "IndexError",
        "JSONDecodeError",
        "UnicodeDecodeError",
        "Empty",
    ]
)


RANK_OF = re.compile(r"^(\w+)_rank$")
GROUP_OF = re.compile(r"^_*(\w+?)_(process_group|group|pg)$")


def rank_kind(name: str) -> str:
    """ "rank" or "local" of a variable that holds a rank's number, "dp" of dp_rank; "" of others."""
    plain = name.lstrip("_")
    if plain in RANK_NAMES:
        return RANK_NAMES[plain]
    return dimension(match[1]) if (match := RANK_OF.search(plain)) else ""


def group_kind(name: str) -> str:
    """ "dp" of dp_group."""
    return dimension(match[1]) if (match := GROUP_OF.search(name)) else ""


def dimension(name: str) -> str:
    """ "dp" of get_data_parallel_rank, of a mesh's "dp_shard"; "" where the name says none."""
    return next((kind for kind, pattern in DIMENSIONS if pattern.search(name)), "")


def is_batch(name: str, function: str) -> bool:
    """A parameter of such a name, in such a function, holds what this rank read, or what its model made of that."""
    if NOT_BATCH.search(name):
        return False
    return bool(BATCH.search(name)) or bool(MAYBE_BATCH.search(name) and STEP.search(function))

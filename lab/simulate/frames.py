"""Where each call is made: the Python frames that a dump carries, innermost first.

Three kinds of program: eager Python; compiled (the calls sit in generated files); and calls that C++ makes, which have
no Python frame at all (DDP's reducer).
"""

from __future__ import annotations

C10D = "/usr/local/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
LOGGER = "/usr/local/lib/python3.11/site-packages/torch/distributed/c10d_logger.py"
TENSOR = "/usr/local/lib/python3.11/site-packages/megatron/core/tensor_parallel/mappings.py"
FSDP = "/usr/local/lib/python3.11/site-packages/torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py"
PIPE = "/workspace/src/pipeline.py"
MODEL = "/workspace/src/model.py"
TRAIN = "/workspace/src/train.py"
SAVE = "/workspace/src/checkpoint.py"

API_LINES = {
    "all_reduce": 2810, "_all_gather_base": 3788, "_reduce_scatter_base": 4226, "broadcast": 2714, "all_to_all": 4411,
    "all_gather": 3580, "gather": 3941, "barrier": 4586, "all_reduce_barrier": 4586, "send": 2402, "recv": 2448,
    "coalesced": 2567,
}  # fmt: skip
API_NAMES = {
    "_all_gather_base": "all_gather_into_tensor",
    "_reduce_scatter_base": "reduce_scatter_tensor",
    "all_to_all": "all_to_all_single",
    "all_reduce_barrier": "barrier",
    "send": "isend",
    "recv": "irecv",
    "coalesced": "batch_isend_irecv",
}
Frame = tuple[str, str, int]
MAIN: tuple[Frame, ...] = (("main", TRAIN, 412), ("<module>", TRAIN, 431))
STEP: tuple[Frame, ...] = (("train_step", TRAIN, 233), ("train", TRAIN, 318), *MAIN)
PASS: tuple[Frame, ...] = (("forward_backward_pipelining", PIPE, 141), *STEP)


def _layer(function: str, line: int) -> tuple[Frame, ...]:
    return ((function, TENSOR, line), ("forward", MODEL, line + 41), ("forward_step", PIPE, 88), *PASS)


STACKS: dict[str, tuple[Frame, ...]] = {
    "init_barrier": (("initialize", TRAIN, 58), *MAIN),
    "init_broadcast": (("broadcast_params", MODEL, 77), ("build_model", TRAIN, 96), *MAIN),
    "data_broadcast": (("get_batch", TRAIN, 171), *STEP),
    "tp_reduce_forward": _layer("_reduce", 29),
    "tp_gather_forward": _layer("_gather_along_first_dim", 131),
    "tp_scatter_forward": _layer("_reduce_scatter_along_first_dim", 167),
    "experts_out_forward": _layer("_all_to_all", 455),
    "experts_back_forward": _layer("_all_to_all_combine", 470),
    "fsdp_gather_forward": (
        ("foreach_all_gather", FSDP, 186),
        ("forward", MODEL, 140),
        ("forward_step", PIPE, 88),
        *PASS,
    ),
    "tp_reduce_backward": (("_reduce", TENSOR, 29), ("backward", TENSOR, 229)),
    "tp_gather_backward": (("_gather_along_first_dim", TENSOR, 131), ("backward", TENSOR, 322)),
    "tp_scatter_backward": (("_reduce_scatter_along_first_dim", TENSOR, 167), ("backward", TENSOR, 318)),
    "experts_out_backward": (("_all_to_all", TENSOR, 455), ("backward", TENSOR, 480)),
    "experts_back_backward": (("_all_to_all_combine", TENSOR, 470), ("backward", TENSOR, 486)),
    "fsdp_gather_backward": (("foreach_all_gather", FSDP, 186), ("pre_backward", FSDP, 402)),
    "fsdp_scatter": (("foreach_reduce", FSDP, 451), ("post_backward", FSDP, 520)),
    "zero_scatter": (("start_grad_sync", MODEL, 301), ("grad_hook", MODEL, 322)),
    "ddp_bucket": (),
    "gradient_norm": (("clip_grad_norm", TRAIN, 201), *STEP),
    "zero_gather": (("gather_params", MODEL, 355), ("step", TRAIN, 215), *STEP),
    "loss_mean": (("average_losses", TRAIN, 222), *STEP),
    "step_stats": (("log_step", TRAIN, 241), *STEP),
    "eval_metric": (("evaluate", TRAIN, 270), ("train", TRAIN, 330), *MAIN),
    "save_sizes": (("save", SAVE, 61), ("train", TRAIN, 341), *MAIN),
    "save_gather": (("save", SAVE, 70), ("train", TRAIN, 341), *MAIN),
    "save_barrier": (("save", SAVE, 92), ("train", TRAIN, 341), *MAIN),
    "shard_barrier": (("save_sharded", SAVE, 133), ("train", TRAIN, 339), *MAIN),
    "load_shard": (("exchange_shards", SAVE, 158), ("train", TRAIN, 311), *MAIN),
    "final_barrier": (("train", TRAIN, 352), *MAIN),
    "extra": (("maybe_log_outlier", TRAIN, 249), *STEP),
    "recv_forward": (("recv_forward", PIPE, 31), *PASS),
    "send_forward": (("send_forward", PIPE, 44), *PASS),
    "recv_backward": (("recv_backward", PIPE, 52), *PASS),
    "send_backward": (("send_backward", PIPE, 60), *PASS),
    "send_forward_recv_backward": (("send_forward_recv_backward", PIPE, 69), *PASS),
    "send_backward_recv_forward": (("send_backward_recv_forward", PIPE, 79), *PASS),
}
COMPILED = ("tp_", "experts_")
IN_BACKWARD = ("_backward", "ddp_bucket", "fsdp_scatter", "zero_scatter")


def in_backward(site: str) -> bool:
    """Autograd's own thread makes the call; pipeline sends of gradients come from the main thread."""
    return site.endswith(IN_BACKWARD) and not site.startswith(("send_", "recv_"))


class Frames:
    """Frames by call site, shared between entries as the recorder's own are."""

    def __init__(self, generated: bool) -> None:
        self._generated = generated
        self._known: dict[tuple[str, str], list[dict[str, object]]] = {}

    def of(self, site: str, name: str) -> list[dict[str, object]]:
        key = (site, name)
        if key not in self._known:
            self._known[key] = [{"name": f, "filename": p, "line": n} for f, p, n in self._stack(site, name)]
        return self._known[key]

    def _stack(self, site: str, name: str) -> tuple[Frame, ...]:
        stack = STACKS[site]
        if not stack:
            return ()
        if self._generated and site.startswith(COMPILED):
            file = f"/tmp/torchinductor_train/{site[:2]}/c{sum(site.encode()) * 7919 % 16**8:08x}{site.encode().hex()[:20]}.py"
            return (
                ("call", file, 100 + sum(site.encode()) % 300),
                ("compiled_fn", "<eval_with_key>.4", 5),
                *stack[-2:],
            )
        call = name.partition(":")[2].partition(" ")[0]
        return ((API_NAMES.get(call, call), C10D, API_LINES.get(call, 2800)), ("wrapper", LOGGER, 83), *stack)

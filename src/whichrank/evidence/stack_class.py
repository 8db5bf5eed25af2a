"""What a thread is doing, told from its stack by the frames of libraries that everybody uses.

Frames are "func (file:line)", innermost first, of Python, of native code ("read (libc.so.6)") or of the kernel
("nfs_file_read (nfs)"). The innermost meaningful frame decides: a wait as such (lock, queue, select) means nothing,
so frames further out may say what it waits for. Frames of unknown files count as the user's own code: `compute`;
unknown functions of the C library, the interpreter and the kernel say nothing.

>>> classify(["wait (threading.py:331)", "get (queue.py:180)", "_try_get_data (torch/utils/data/dataloader.py:1251)"])
'data_wait'
>>> classify(["all_reduce (torch/distributed/distributed_c10d.py:1322)", "train_step (trainer.py:883)"])
'collective'
>>> classify(["futex_wait (libc.so.6)", "wait (threading.py:355)", "result (concurrent/futures/_base.py:451)", "load (a.py:3)"])
'sleep_lock'
>>> classify(["read (libc.so.6)", "_io_FileIO_readinto (python3.11)", "fetch (shards.py:77)", "__next__ (shards.py:101)"])
'file_io'
>>> classify(["train_epoch (train_vid.py:151)"]), classify([])
('compute', 'unknown')

py-spy 0.4.3 names the class of a method, gdb and pystack the C library's inner names:

>>> classify(["Condition.wait (threading.py:327)", "_MultiProcessingDataLoaderIter._try_get_data (torch/utils/data/dataloader.py:1251)"])
'data_wait'
>>> classify(["__GI___libc_read (../sysdeps/unix/sysv/linux/read.c:26)", "_Py_read (Python/fileutils.c:1806)"])
'file_io'
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import NamedTuple

PHRASES = {
    "collective": "inside a collective, waiting for other ranks",
    "data_wait": "waiting for a batch from its DataLoader",
    "file_io": "reading or writing a file",
    "checkpoint": "saving or loading a checkpoint",
    "tokenising": "preparing data (tokenising, mapping a dataset)",
    "upload": "in a network request (HTTP, object store, hub, tracker)",
    "subprocess": "waiting for a child process",
    "compile": "compiling (torch.compile, Triton, C++ extension)",
    "gpu_sync": "waiting for its GPU",
    "backward": "in the backward pass, where gradient all-reduces run",
    "init": "still starting up (imports, process group, device)",
    "debugger": "stopped in a debugger or waiting for keyboard input",
    "sleep_lock": "sleeping or waiting for a lock, a queue or another thread",
    "gil": "waiting for Python's global interpreter lock",
    "teardown": "shutting down",
    "compute": "running code of its own",
    "unknown": "doing nothing that its stack shows",
}

# Which classes a frame further out may replace: a wait or plain code inside it was only how it does its work.
_OVER: dict[str, frozenset[str]] = {
    "collective": frozenset({"sleep_lock", "gpu_sync", "compute"}),
    "data_wait": frozenset({"sleep_lock", "compute"}),
    "file_io": frozenset({"sleep_lock"}),
    "checkpoint": frozenset({"sleep_lock", "compute", "file_io"}),
    "tokenising": frozenset({"sleep_lock", "compute", "file_io", "subprocess"}),
    "upload": frozenset({"sleep_lock", "compute", "file_io"}),
    "subprocess": frozenset({"sleep_lock", "file_io"}),
    "compile": frozenset({"sleep_lock", "compute", "file_io", "subprocess", "gpu_sync"}),
    "gpu_sync": frozenset({"sleep_lock"}),
    "backward": frozenset({"sleep_lock", "compute"}),
    "init": frozenset({"sleep_lock", "compute", "file_io", "gpu_sync", "upload"}),
    "debugger": frozenset({"sleep_lock", "compute", "file_io", "upload"}),
    "teardown": frozenset({"sleep_lock", "compute", "file_io", "gpu_sync", "subprocess", "data_wait"}),
    "sleep_lock": frozenset(),
    "gil": frozenset({"sleep_lock"}),
}
_NATIVE = r"(?: \((?:.*/)?(?:lib[\w+-]+[\w.-]*|ld-[\w.-]+|python[\d.]*|\[?vdso\]?|[\w+.-]+\.[chS]:\d+|[^():]*)\))?$"
# "Class.method (x.py:3)", "outer.<locals>.inner (x.py:3)": only the function's own name counts.
_QUALIFIED = re.compile(r"^[\w.<>]*\.(?=[\w<][\w<>]* \((?:<|[^()]*\.pyx?[:)]))")
# "__GI___libc_read", "__libc_recv", "__new_sem_wait", "clock_nanosleep@GLIBC_2.2.5", "foo.constprop.0"
_INNER = re.compile(r"^(?:__GI_+|__libc_(?!start)|__new_|_{2,3}(?!libc_start|clone))(?:libc_)?(?=[a-z])")
_VARIANT = re.compile(r"^([A-Za-z_]\w*)(?:@@?[\w.]+|\.(?:constprop|isra|part|cold|lto_priv)(?:\.\d+)?)+")


# Where a thread or a forked process begins: frames further out belong to whoever started it.
_STARTS = re.compile(r"^_worker_loop \(|^_bootstrap(?:_inner)? \(.*(?:multiprocessing/process|threading)\.py")


class Rule(NamedTuple):
    name: str
    pattern: str
    over: frozenset[str]


def _rule(name: str, pattern: str, over: frozenset[str] | None = None) -> Rule:
    return Rule(name, pattern, _OVER[name] if over is None else over)


# fmt: off
# The first rule that fits a frame counts.
RULES = (
    _rule("debugger", r"^(?:PyOS_(?:Stdio)?Readline|builtin_input\w*|my_fgets|n_tty_read|tty_read)\b", frozenset({"sleep_lock", "file_io"})),
    _rule("gil", r"^(?:take_gil|PyEval_RestoreThread|PyGILState_Ensure|_PyEval_\w*[Gg]il\w*)\b"),
    _rule("debugger", r"\((?:.*/)?(?:[ip]*pdb\.py|bdb\.py|(?:ipdb|debugpy|pydevd?|_pydevd?\w*|pudb|rpdb|web_pdb|remote_pdb|IPython/(?:core|terminal)/debugger)[/.].*)|^(?:builtin_input\w*|set_trace|breakpoint|interaction|ptrace_stop)\b|^\w+ \((?:.*/)?cmd\.py"),
    _rule("teardown", r"^(?:destroy_process_group|_shutdown_workers|_exit_function|_run_exitfuncs|Py_Finalize\w*|p?ncclComm(?:Abort|Destroy|Finalize)\w*|_shutdown \((?:.*/)?threading\.py)"),
    _rule("init", r"^(?:init_process_group|_?new_(?:group|process_group)\w*|_store_based_barrier|init_device_mesh|init_distributed|p?ncclCommInit\w*|_lazy_init|cuInit|cuDevicePrimaryCtxRetain|_create_c10d_store|_?tcp_?store\w*|TCPStore)\b|torch/distributed/(?:rendezvous\.py|elastic/rendezvous/)|c10d::TCPStore"),
    _rule("init", r"<frozen importlib|importlib/_bootstrap", frozenset({"sleep_lock", "file_io"})),
    _rule("sleep_lock", r"torch/distributed/(?:elastic|launcher)/|torch/distributed/run\.py"),
    _rule("checkpoint", r"torch/distributed/checkpoint/|torch/serialization\.py|[(/]safetensors[/.]|fsdp/_(?:state_dict|optim)_utils\.py|deepspeed/runtime/checkpoint_engine|megatron/(?:core/dist_checkpointing|training/checkpointing|checkpointing)|[(/]orbax/|torchtitan/components/checkpoint|composer/(?:checkpoint|utils/checkpoint)|lightning(?:_fabric|/fabric|/pytorch)/plugins/io|accelerate/checkpointing\.py"),
    _rule("checkpoint", r"^_?(?:save_checkpoint|save_pretrained|save_model|save_state|load_checkpoint)\b", frozenset({"sleep_lock", "compute", "file_io"})),
    _rule("collective", r"torch/distributed/(?:distributed_c10d|_functional_collectives\w*|nn/functional|algorithms/join)\.py|torch/distributed/_?(?:symmetric_memory|tensor/_collective_utils)|deepspeed/comm/|megatron/core/pipeline_parallel/p2p_communication|[(/]horovod/|^p?nccl(?:Group(?:End|Start)|All\w+|Reduce\w*|Broadcast|Bcast|Send|Recv)\b|c10d::(?:ProcessGroup|ops|Work)|\bgloo::"),
    _rule("collective", r"^(?:_sync_(?:buffers|params|module_states)\w*|_verify_param\w+|_pre_forward|_distributed_broadcast_coalesced) \(.*torch/(?:nn/parallel|distributed)/"),
    _rule("backward", r"torch/autograd/(?:__init__|graph|function)\.py|^backward \(.*torch/_?tensor\.py|torch::autograd::Engine"),
    _rule("compile", r"torch/_inductor/(?!output_code|utils\.py|cudagraph|runtime/(?:static_)?(?:cuda_)?launcher)|torch/_dynamo/(?!eval_frame|external_utils|__init__|utils\.py|hooks)|torch/_functorch/(?!_aot_autograd/(?:runtime_wrappers|utils)|_activation)|torch/fx/(?:experimental|passes)|[(/]triton/(?:compiler|backends|testing|runtime/(?:autotuner|build))|torch/utils/cpp_extension\.py|deepspeed/ops/op_builder|[(/](?:flashinfer|deep_gemm|tilelang)/jit|vllm/compilation/(?:backends|compiler_interface)|^nvrtc"),
    _rule("gpu_sync", r"^synchronize \(.*torch/cuda/|torch/cuda/streams\.py|^(?:cuda|cu)(?:Stream|Device|Event|Ctx)(?:Synchronize|Query)|^(?:cuda|cu)(?:Memcpy|Launch|Malloc|Free|Memset)\w*|\b_local_scalar_dense|^(?:nv_\w+|nvidia_(?:ioctl|poll|unlocked_ioctl)|uvm_\w+|rm_ioctl|nvidia_\w+ioctl)\b"),
    _rule("gpu_sync", r"\((?:.*/)?lib(?:cuda|cudart|nvidia\S*|hsa-runtime64|amdhip64)[\d.-]*\.so", frozenset({"sleep_lock"})),
    _rule("data_wait", r"^(?:_try_get_data|_get_data|_next_data|__next__|_process_data) \(.*torch/utils/data/dataloader\.py"),
    _rule("data_wait", r"^\w+ \(.*torch/utils/data/_utils/pin_memory\.py|(?:nvidia/dali|ffcv/loader|streaming/base/dataset|webdataset/|ray/data/|tensorflow/python/data)", frozenset({"sleep_lock"})),
    _rule("tokenising", r"[(/](?:tokenizers|sentencepiece|tiktoken|nltk|spacy)[/.]|transformers/tokenization_|datasets/(?:arrow_dataset|fingerprint|builder|utils/py_utils|dataset_dict)\.py"),
    _rule("tokenising", r"^_?build\w* \(.*megatron/(?:core/)?(?:datasets|data)/"),
    _rule("subprocess", r"^\w+ \((?:.*/)?subprocess\.py|^(?:wait|poll|join|_wait\w*|waitpid) \(.*(?:multiprocessing/(?:process|popen_\w+)|torch/multiprocessing/spawn)\.py|^(?:__)?(?:waitpid|wait4|waitid|do_wait\w*)\b" + _NATIVE),
    _rule("upload", r"[(/](?:http/client\.py|urllib3?/|requests/|aiohttp/|httpx/|httpcore/|botocore/|boto3?/|s3transfer/|s3fs/|gcsfs/|adlfs/|huggingface_hub/|hf_transfer|wandb/|mlflow/|neptune/|comet_ml/|google/(?:cloud|resumable_media)/|azure/|smart_open/|grpc/|paramiko/)"),
    _rule("upload", r"\((?:.*/)?(?:socket|ssl)\.py", frozenset()),
    _rule("file_io", r"\((?:.*/)?(?:tarfile|zipfile(?:/__init__|/_path)?|shutil|glob|gzip|bz2|lzma|_?pathlib(?:/_\w+)?|genericpath|posixpath|tempfile|mmap|codecs|_pyio)\.py|^(?:walk|makedirs|scandir|_?fsync|listdir|_walk) \((?:.*/)?os\.py|numpy/(?:lib/(?:_?npyio\w*|_?format\w*)|_?core/memmap)\.py|[(/](?:h5py|lmdb|soundfile|pyarrow|zarr)[/.]|pandas/io/|PIL/Image\.py"),
    _rule("file_io", r"^(?:__)?(?:read|pread(?:64|v2?)?|readv|write|pwrite(?:64|v2?)?|writev|fsync|fdatasync|open(?:at)?(?:64)?|close|l?stat(?:64)?|fstat(?:at)?(?:64)?|fxstat\w*|xstat\w*|newfstatat|statx|getdents(?:64)?|readdir(?:64)?|access|unlink|rename|mkdir|flock|fcntl|sync_file_range|copy_file_range|sendfile)(?:_nocancel)?" + _NATIVE),
    _rule("file_io", r"^(?:_io_\w+|_bufferedreader\w*|_Py_(?:read|write|open|fopen|stat)\w*|os_(?:stat|open|read|write|listdir|scandir|fsync)\w*|vfs_\w+|ksys_(?:read|write|pread64|pwrite64)|do_sys_open\w*)\b", frozenset()),  # sockets and pipes are read through them, too
    _rule("file_io", r"^(?:(?:nfs|nfs4|nfs3|ext4|xfs|btrfs|ceph|fuse|ll|lustre|ptlrpc|cl|osc|mdc|gpfs|cifs|smb2|beegfs|FhgfsOps|wekafs|jbd2|blk|bio|rpc)_\w+|__?rpc_\w+|(?:folio|filemap|page|generic_file|wait_on_page|__filemap)_\w+|io_schedule\w*|wait_on_page_bit\w*)\b"),
    # A pipe between processes is read like a file.
    _rule("sleep_lock", r"multiprocessing/(?:queues|connection|synchronize|managers)\.py|^(?:Connection\.)?_?recv\w* \(.*multiprocessing/", frozenset({"file_io"})),
    _rule("sleep_lock", r"device_communicators/shm_broadcast\.py|^(?:wait_woken|wait_for_partner|fifo_open|do_epoll_wait|do_futex_wait|futex_do_wait|pysleep|ep_poll\w*)\b"),
    _rule("sleep_lock", r"\((?:.*/)?(?:threading|queue|selectors|_base|thread|signal)\.py|concurrent/futures/|multiprocessing/(?:queues|connection|synchronize|pool|managers|util|context|popen_\w+)\.py|asyncio/|[(/](?:filelock|fasteners|portalocker)[/.]|ray/_private/worker\.py|uvloop|trio/"),
    _rule("sleep_lock", r"^(?:__)?(?:futex\w*|pthread_\w+|sem_\w+|sched_yield|clock_nanosleep|nanosleep|time_sleep|usleep|sleep|select|pselect\d*|poll|ppoll|epoll_\w+|do_futex|lll_\w+|std::(?:condition_variable|this_thread|thread|__condvar)\S*|syscall|pause|accept4?|acquire|recv(?:from|msg)?(?:_into)?|send(?:to|msg)?|schedule\w*|hrtimer_\w+|do_nanosleep|ep_poll|pipe_\w+|unix_stream\w*|sk_wait_data|inet_\w+|tcp_\w+|sock_\w+|do_(?:sys_)?poll\w*|do_select|x64_sys_\w+|do_syscall_64|entry_SYSCALL\w*|anon_pipe\w*|refrigerator|do_freezer_trap|get_signal|PyThread_\w+|lock_PyThread\w*|acquire_timed|rlock_acquire)\w*" + _NATIVE),
    _rule("data_wait", r"^__next__ \(", frozenset({"sleep_lock", "compute"})),
    _rule("data_wait", r"^(?:__iter__|next_batch|get_batch|iter_batches|get_next_batch)\b", frozenset({"sleep_lock"})),
)
# Wrappers and interpreters of nothing: they never decide.
_NEUTRAL = re.compile(
    r"\((?:.*/)?(?:contextlib|functools|runpy|typing|copyreg)\.py|whichrank/record/\w+\.py|torch/(?:distributed/c10d_logger|utils/_contextlib|nn/modules/(?:module|container)|utils/checkpoint|_dynamo/(?:eval_frame|external_utils|utils)|utils/data/)"
    r"|multiprocessing/(?:process|spawn|forkserver)\.py|torch/multiprocessing/spawn\.py|^_bootstrap|^(?:_Py|Py|py|_?PyEval|method_|cfunction_|vectorcall|slot_|builtin_|function_|type_)\w*" + _NATIVE
    + r"|^0x[0-9a-f]+\b|^[\w.@]+$|^[\w.@]+ \((?:.*/)?(?:libc|libpthread|ld-linux|libpython|libstdc\+\+|libgcc_s|python)[-\w.]*\)$"  # the kernel; libraries of everybody
    + r"|\((?:\./)?(?:\S*/)?(?:(?:Python|Objects|Modules|Include|Parser)/\S+|(?:\w*module|\w+object|ceval\w*|thread_pthread|pylifecycle|pythonrun|main|call|abstract|obmalloc|fileutils|pystate|bufferedio|fileio|textio|iobase|thread|bltinmodule|clone3?|libc-start|pthread_create|libc_start_call_main)\.[\w.]+):\d+\)$"
    + r"|^(?:\?\?|_start|__libc_start\w*|start_thread|clone3?|main \(python|<module>|call_trace|ret_from_fork|secondary_startup\w*)|^\(unknown\)|^<no Python frame>"
)
# fmt: on


@cache
def _patterns() -> tuple[tuple[Rule, re.Pattern[str]], ...]:
    """Compiled when the first stack is seen: most folders hold none."""
    return tuple((rule, re.compile(rule.pattern)) for rule in RULES)


@lru_cache(maxsize=65536)
def _rule_of(frame: str) -> Rule | None:
    return next((rule for rule, pattern in _patterns() if pattern.search(frame)), None)


@lru_cache(maxsize=65536)
def _plain(frame: str) -> str:
    """A frame by its function's own name: without classes, and without what compilers and the C library put around it."""
    if _QUALIFIED.match(frame):
        return _QUALIFIED.sub("", frame)
    if ".py" in frame:
        return frame
    return _VARIANT.sub(r"\1", _INNER.sub("", frame.replace(" (inlined)", "", 1)))


def judge(frames: Sequence[str]) -> tuple[str, int]:
    """The class of a stack, and the index of the frame that decided (0 if none did)."""
    found: tuple[str, int] | None = None
    for index, frame in enumerate(map(_plain, frames)):
        if _STARTS.search(frame):
            break
        rule = _rule_of(frame)
        if rule is None:
            if found is None and not _NEUTRAL.search(frame):
                found = ("compute", index)
        elif found is None or found[0] in rule.over or _named(found, rule, frames):
            found = (rule.name, index)
    return found or ("unknown", 0)


def _named(found: tuple[str, int], rule: Rule, frames: Sequence[str]) -> bool:
    """Of several frames in the driver, one that has a name tells more."""
    return found[0] == rule.name == "gpu_sync" and frames[found[1]].startswith("??")


def classify(frames: Sequence[str]) -> str:
    """The class of a stack, one of `PHRASES`."""
    return judge(frames)[0]


def explain(name: str) -> str:
    """A short phrase for a class.

    >>> explain("data_wait")
    'waiting for a batch from its DataLoader'
    """
    return PHRASES.get(name, PHRASES["unknown"])

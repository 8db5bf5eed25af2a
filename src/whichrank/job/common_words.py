"""Words that everybody's paths, commands and logs hold: no names of anything private.

Used to tell what a report may keep when it is redacted. A word that is missing here is taken out of a path, though it
told nothing; a word too many here could be somebody's name: in doubt leave it out.
"""

from __future__ import annotations

import re
import sys

# Parts of paths and file names, and what stands where a name would stand.
_COMMON = """
a accelerate account activate activation active address agent all alpha amazon amd and any api app apps arch archive
args arrow artifact artifacts attempt audio auto aws backup bar base bash batch batches bench benchmark best beta bf16
bin block boot box branch bucket buffer bug build built byte bytes cache caches callback case cfg cgroup check
checkpoint checkpoints chief chunk chunks ckpt ckpts class cleanup client cluster code collate collator collect
collector command common compile complete component compute conda config configs console container content copy core
cores count cpp cpu crash csrc csv ctl cuda cudnn current custom daemon data database dataloader dataset datasets date
day db ddp debug deepspeed default demo deploy dest dev developer device devices dgx diag dir dirs disk dist
dmesg doc docker docs domain done download downloads driver drivers dump dumps dynamic earlyoom ec2 elastic empty
encoder env envs epoch epochs err error errors etc ethtool eval evaluation event events example examples excerpt exec
exp experiment experiments export exports extra false fast fatal fetch fi file files final find finetune finish first
flight fn fold fp16 fr fs fsdp full func function functions gather gdb generate generic get git global gloo gpu gpus
grad group groups guest half head health help here hf hip history home host hostfile hostname hosts http huggingface
hub ib idx image images img import in index info infiniband init input inputs install int io ip items iter job
jobid jobs journal journalctl json jsonl kern kernel key keys kill kube kubectl kubelet kubepods label labels large
last latest launch launcher lib lib32 lib64 libexec libs lightning limit line lines link linux list load loader local
localhost location lock log logger logging logs lora loss machine mail main make manifest manual master media mem
memory message messages meta metadata metric metrics mgr min mini mini3 miniconda miniconda3 miniforge3 anaconda
anaconda3 mpi mpirun mnt mod mode model models module modules monitor mount msg multi name names native nccl net
network new next nfs no node nodes none normal note notes npz null num numpy nvidia nvlink object objects of off old
on oom op ops opt optim optimizer option options or org orig os other out output outputs own package packages page
parallel params part parts path paths patch perf perfquery person pid ping pip pipe placement plain plan plugin
plugins pod pods port ports post predictions preempted prefetch pretrain pretrained preview prev proc process
processes prod prof profile program project projects ps pt pth public py pyspy pytest python python2 python3 pytorch
query queue quick rank ranks raid ras raw ray read reader readme ready record recorder records ref release remote
repo repos report req request requirements res reserved resource restart result results resume rocm root router run
runner running runs runtime sacct sample samples save saved saving sbin sbatch scale scheduler score scratch script
scripts sd se search section seed self seq server serve service session set sets settings setup sh shard shards share
shared shell shm show shuffle signal site size slice slurm slurmstepd small smi snapshot so socket software source
sources space spot spy squeue src srun ssh stack stacks stage staging start state states stats status stderr stdin
stdout step steps stop storage store stream string sub suite sum summary sync sys syslog system systemd tab table
tag tar target targets task tasks team temp template term test testing tests text the thread threads time timeline
timeout tmp to token tokenized tokenizer tokens tool tools torch torchelastic torchrun total trace traces train
trainer trainers training trainset transformers true truth try tune txt type ubuntu uid unit unknown user users usr
util utils val valid validation validset value values var venv venvs version virtualenv virtualenvs vol volume
volumes wait wandb watchdog web webdataset weights wheel with work worker workers workspace world write x x86 yaml
yml zip admin administrator anonymous nobody daemon ec2 centos debian
host_name pod_name job_name user_name nodelist nodename jobname jobid userid yes on off self cls it its this that an
by for from into is as at be if not than then there was were will which who what when where
gz xz zst tgz sh jpg jpeg png wav flac mp mp4 mp3 safetensors npy h5 pkl pickle hdf5 toml ini sif sqsh dat cc cu hpp
nfsiostat iostat nvme ibstat ibv smi topo tests top cmd command commands change changes busid busids layout cases
fp8 fp32 bf tf tf32 amp slow hung hang stuck dead killed drained idle down up noisy console
"""
COMMON = frozenset(_COMMON.split())
# Packages whose files everybody has: a path below one of them tells nothing.
_PACKAGES = """
torch torchvision torchaudio torchtext torchdata torchtune torchtitan torchelastic torchao torchrec torchmetrics
torchsnapshot torchx functorch triton numpy scipy pandas pyarrow polars sklearn skimage PIL cv2 av decord transformers
datasets accelerate peft trl tokenizers safetensors huggingface_hub diffusers evaluate optimum deepspeed megatron
megatron_core apex transformer_engine flash_attn xformers bitsandbytes vllm sglang lightning pytorch_lightning
lightning_fabric lightning_utilities fairscale fairseq fairseq2 detectron2 mmcv mmengine mmdet timm nemo ray dask
distributed horovod mpi4py wandb tensorboard tensorboardX mlflow comet_ml neptune aim hydra omegaconf absl click rich
tqdm loguru fsspec s3fs gcsfs boto3 botocore aiobotocore requests urllib3 aiohttp httpx grpc google webdataset
streaming litdata ffcv nvidia cupy cuda jax jaxlib flax tensorflow tensorflow_datasets keras pip setuptools wheel
pkg_resources numba h5py zarr lmdb msgpack msgspec yaml jinja2 markupsafe psutil pynvml py3nvml submitit sagemaker
sagemaker_training composer colossalai bmtrain verl openrlhf slime espnet espnet2 speechbrain whisper einops kornia
albumentations librosa soundfile sentencepiece tiktoken multiprocess dill cloudpickle joblib fastapi uvicorn starlette
gradio pytest _pytest pluggy IPython ipykernel nvidia_resiliency_ext intel_extension_for_pytorch oneccl_bindings_for_pytorch
"""
PACKAGES = frozenset(_PACKAGES.split()) | sys.stdlib_module_names
# Files of PyTorch that stacks name without their folder.
_FILES = """
distributed_c10d c10d_logger dataloader _utils worker pin_memory fetch collate checkpoint graph functional module
elastic api launch run rendezvous store_util local_timer agent engine trainer train_loop loops fit_loop module_inject
eval_frame convert_frame output_graph compile_fx grad_scaler adam adamw sgd optimizer lr_scheduler dynamic_rendezvous
c10d_rendezvous_backend static_tcp_rendezvous multiprocess stage3 stage_1_and_2 coalesced_collectives
planner default_planner filesystem state_dict_saver state_dict_loader serialization tensor _tensor
"""
FILES = frozenset(_FILES.split())
_WORDS = re.compile(r"[^\W\d_]+")


def is_common(word: str) -> bool:
    """Is this no name? All its parts are words that everybody uses; digits and separators do not count.

    >>> is_common("rank_03"), is_common("step41000"), is_common("llama-7b"), is_common("418822")
    (True, True, False, True)
    """
    parts = _WORDS.findall(word)
    return all(len(part) == 1 or part.lower() in COMMON for part in parts) and sum(len(part) == 1 for part in parts) < 4

#!/bin/bash
# NIC affinity: local ranks 0-3 must sit next to mlx5_4..7, see wiki/Perf/A100-order
export CUDA_VISIBLE_DEVICES=4,5,6,7,0,1,2,3
export NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=3600
torchrun --nnodes=2 --node_rank=$1 --nproc_per_node=8 --master_addr=mi-gpu-21 --master_port=29555 tools/train.py configs/internimage_l_upernet.py --launcher pytorch

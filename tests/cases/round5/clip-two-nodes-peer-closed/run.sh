torchrun --nnodes 2 --nproc_per_node 8 --tee 3 --rdzv_backend c10d --rdzv_endpoint ip-10-1-6-14:29400 train.py --data s3-cache --workers 6

#!/bin/bash
# both nodes
pdsh -S -w tokay-a,tokay-b 'cd /nfs/runs/m14 && ./start_ranks.sh > $(hostname -s).out 2>&1'

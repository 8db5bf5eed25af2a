"""`torchrun … -m whichrank.preflight`, `srun python -m whichrank.preflight`."""

from __future__ import annotations

import sys

from whichrank.__main__ import main

main(["preflight", *sys.argv[1:]])

"""Tells whoever started the job how far each rank is: a line into a pipe, which is lost where nobody reads it."""

import json
import os
import time

_pipe = -1


def connect(path):
    global _pipe
    try:
        _pipe = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        _pipe = -1


def report(step, at="step"):
    """Lines below PIPE_BUF are written in one piece, whoever else writes."""
    if _pipe < 0:
        return
    line = {"rank": int(os.environ["RANK"]), "pid": os.getpid(), "step": step, "at": at, "ns": time.time_ns()}
    try:
        os.write(_pipe, json.dumps(line).encode() + b"\n")
    except OSError:
        pass

"""A rank is stopped with SIGSTOP."""

import os
import signal

from lab.faults.fault import Drawn, Fault, Truth
from lab.faults.incident import Incident


def during(incident: Incident) -> None:
    os.kill(incident.pid(incident.drawn.victim), signal.SIGSTOP)
    incident.begins()


def truth(drawn: Drawn) -> Truth:
    why = f"rank {drawn.victim} was stopped in step {drawn.step}"
    mechanism = ["host_stuck"] if drawn.watched else ["host_stuck", "dead"]  # it has left no dump
    return Truth("stopped", mechanism, [drawn.victim], why, bare_also=["undecided", "killed"])


FAULT = Fault("stopped", "SIGSTOP from outside, when the rank reports its step", truth, during=during)

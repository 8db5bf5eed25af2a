"""A rank gets SIGKILL, and nothing says from whom."""

import os
import signal

from lab.faults.fault import Drawn, Fault, Truth
from lab.faults.incident import Incident


def during(incident: Incident) -> None:
    os.kill(incident.pid(incident.drawn.victim), signal.SIGKILL)
    incident.begins()


def truth(drawn: Drawn) -> Truth:
    return Truth(
        "killed", ["dead"], [drawn.victim], f"rank {drawn.victim} got SIGKILL in step {drawn.step}", bare_also=()
    )


FAULT = Fault("killed", "SIGKILL from outside, when the rank reports its step", truth, during=during)

"""Stories of dumps share with those of logs what holds for every report; the lab is found from the root."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "reasoning"))
sys.path.append(str(Path(__file__).parents[2]))

from whichrank.evidence.scan import Reader

READER = Reader("gpu_tools")

from whichrank.evidence.scan import Reader

READER = Reader("nccl_ras")

from whichrank.evidence.scan import Reader

READER = Reader("torch_store")

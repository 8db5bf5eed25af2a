from whichrank.evidence.scan import Reader

READER = Reader("stacks")

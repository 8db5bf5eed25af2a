from whichrank.evidence.scan import Reader

READER = Reader("network_tools")

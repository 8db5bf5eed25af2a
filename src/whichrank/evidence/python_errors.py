from whichrank.evidence.scan import Reader

READER = Reader("python_errors")

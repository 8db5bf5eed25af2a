r"""Wrapping that log collectors put around lines, peeled off before the readers run.

The inner text goes to the readers. Labels of the wrapping become identity. The time of the *event* becomes the line's
time (not that of its ingestion; a stamp within the line itself outranks both). The answer to a query is put in time
order. Line numbers stay those of the file. What is not wrapped passes as it is.

>>> part, = peel('{"log":"[rank3] step 7\\n","time":"2026-07-30T09:30:15.4Z","labels":{"pod":"asr-0"}}\n', None)
>>> part.lines, part.numbers, part.whos[0].pod
(['[rank3] step 7'], [1], 'asr-0')
>>> part, = peel('{"log":"2026-07-30T09:30:15.4Z stderr F [pod/asr-0/trainer] [rank3] step 7\\n","stream":"stderr",'
...              '"time":"2026-07-30T09:30:15.5Z"}\n', None)
>>> part.lines, part.whos[0].pod, part.times[0]
(['[rank3] step 7'], 'asr-0', 1785403815400000000)
"""

from whichrank.evidence.envelope.documents import may_be_document
from whichrank.evidence.envelope.layers import Envelope, document, envelope_of, peel
from whichrank.evidence.envelope.part import Part

__all__ = ["Envelope", "Part", "document", "envelope_of", "may_be_document", "peel"]

"""The words of a report: grades, mechanisms, states of a rank, actions."""

from __future__ import annotations

GRADES = {
    "proven": "Two independent kinds of evidence, or one that decides alone, and nothing against; 95 % or more.",
    "likely": "Between 75 and 95 %: act on it, and collect what is listed under 'to be sure'.",
    "possible": "Between 40 and 75 %: collect what is listed under 'to be sure' before you act.",
    "undecided": "Something is wrong and the evidence cannot say what, or who: see 'missing' and 'to be sure'.",
}
MECHANISMS = {
    "host_stuck": "A rank is alive in host code (data, saving, evaluation, a lock) and never entered the collective.",
    "gpu_hang": "A rank entered the collective, but its GPU never ran it.",
    "dead": "A process that the collective needs is gone.",
    "desync": "Ranks called different collectives at the same place in their order.",
    "mismatch": "Ranks called the same collective with different sizes or types.",
    "deadlock": "Ranks wait for each other in a circle: two groups used in opposite order.",
    "network": "All ranks entered the collective and none finished: the path between them failed.",
    "timeout_short": "All ranks made progress; the collective would have finished, or did, after the timeout.",
    "no_hang": "No collective was held up.",
}
STATES = {
    "culprit": "Its own code, process, GPU or host held the others up.",
    "waiting": "In a collective, waiting for others: a victim.",
    "ahead": "At a later operation than the others. That is no fault by itself.",
    "behind": "At an earlier operation than the others.",
    "silent": "Its evidence stops without an end.",
    "finished": "Ended well.",
    "unknown": "The evidence does not say.",
}
ACTIONS = {
    "restart": "Start again; nothing needs to be left out or changed first.",
    "restart_excluding": "Start again without the hosts named: there is proof against them.",
    "resume": "Go on from the last checkpoint; nothing needs to change.",
    "fix_code": "The training code must change, or it will happen again.",
    "fix_settings": "A setting or launch line must change, or it will happen again.",
    "raise_timeout": "Give the operation more time: it would have finished.",
    "wait": "The job is alive and will get there.",
    "needs_human": "The evidence does not carry an action; collect what is missing.",
}
OTHERS = {
    "victim": "A rank that waited for others, or was torn down with them.",
    "rank_grade": "How sure it is WHICH rank; the cause has its own grade.",
    "mechanism": "How the collective stopped, apart from why.",
    "incident": "One run or attempt that failed by itself.",
}
WORDS: dict[str, tuple[str, str]] = {
    word: (kind, text)
    for kind, words in (
        ("a grade", GRADES),
        ("a mechanism", MECHANISMS),
        ("a state of a rank", STATES),
        ("an action", ACTIONS),
        ("a word of the report", OTHERS),
    )
    for word, text in words.items()
}

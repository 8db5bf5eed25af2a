"""`whichrank run`: start a job, watch it, say within seconds which rank holds it up. Observes, never kills.

Three processes, so that nothing of ours can hold up the job: the *front* (front.py) is the one that was started; it
starts the job, copies its output, passes signals and the exit code, and touches no storage. The *watcher* (watcher.py)
keeps the output, follows the ranks' rings, notices stalls and collects evidence. Everything that may hang (a tool, a
mount, the diagnosis, the copy to `--keep`) runs in children of the watcher that are left behind at their time limit.
"""

"""Before a job starts: will it hang? Every rank runs this where the job would run, and the first one says go or no-go.

Each rank follows the commands of rank 0 (`conduct.py`, `follow.py`) over a small store of keys and values
(`meeting.py`, or the launcher's own: `agent_store.py`). The steps: who came, what is alike (`facts.py`, `alike.py`),
who reaches whom (`reach.py`), how fast (`links.py`, `collective.py`), storage (`storage.py`), GPUs (`gpus.py`). What a
step measures is measured in the ranks; what it means is judged in rank 0, by functions over plain values.

Each step has a time limit of its own, and what may hang for good (a dead mount, a collective) runs in a process of its
own. Nothing here needs torch; the sweep of collectives uses it where it is installed.
"""

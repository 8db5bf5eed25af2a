"""What ties a line to a rank beside its own label: tasks, containers' pids, pods, environments."""

from whichrank.evidence import Evidence, read_piece
from whichrank.job.build import build
from whichrank.job.model import Job


def job_of(**files: str) -> Job:
    evidence = Evidence()
    for name, text in files.items():
        read_piece(name.replace("__", "/").replace("_dot_", "."), text.encode(), evidence)
    return build(evidence)[0]


def test_a_task_and_a_local_rank_are_a_rank() -> None:
    """srun -l before torchrun: one task a node; its labelled lines tell which ranks it holds."""
    text = "\n".join(
        [f"{task}: [default{local}]:[rank{4 * task + local}]: hello" for task in (0, 1) for local in range(4)]
        + ["1: [default2]:loading shard 17", "2: [default3]:loading shard 18"]
    )
    said = {line.text: line.rank for line in job_of(out_dot_log=text).said}

    assert said["loading shard 17"] == 6
    assert said["loading shard 18"] == 11, "tasks 0 and 1 hold four ranks each, in order"


def test_tasks_whose_ranks_contradict_each_other_tell_nothing() -> None:
    text = "\n".join(
        [f"0: [default0]:[rank{rank}]: hello" for rank in (0, 5, 9, 2)] + ["0: [default1]:loading shard 17"]
    )
    said = {line.text: line.rank for line in job_of(out_dot_log=text).said}

    assert said["loading shard 17"] is None


def test_a_containers_pid_is_joined_through_nspid() -> None:
    job = job_of(
        train_dot_log="[rank 4] pid 137 cuda:0 world 8 host gx-17\n[rank 5] pid 138 cuda:1 world 8 host gx-17\n",
        **{
            "gx-17__nspid_dot_txt": "/proc/921406/status:NSpid:\t921406\t137\n/proc/921407/status:NSpid:\t921407\t138\n"
        },
    )

    assert job.rank_by_pid(921407, "gx-17") == 5
    assert job.rank_by_pid(921407, "gx-18") is None


def test_the_environment_of_a_process_names_its_rank() -> None:
    job = job_of(look_dot_txt="gx-17:~$ tr '\\0' '\\n' < /proc/41888/environ | grep RANK\nRANK=6\nLOCAL_RANK=2\n")

    assert job.rank_by_pid(41888, None) == 6

"""nvidia-smi and its kin."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from reading import disturbed, essence, facts_of, one

CSV = """timestamp, index, name, pstate, utilization.gpu [%], utilization.memory [%], memory.used [MiB], power.draw [W], temperature.gpu
2026/08/14 11:05:00.359, 0, NVIDIA A100-SXM4-80GB, P0, 100 %, 1 %, 70112 MiB, 96.25 W, 36
2026/08/14 11:05:00.293, 1, NVIDIA A100-SXM4-80GB, P0, 0 %, 0 %, 70112 MiB, 64.67 W, 36"""
TABLE = """+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 550.54.15              Driver Version: 550.54.15      CUDA Version: 12.4     |
|-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
|=========================================+========================+======================|
|   0  NVIDIA A100-SXM4-80GB          On  |   00000000:07:00.0 Off |                    0 |
| N/A   36C    P0              96W / 400W |   70112MiB /  81920MiB |    100%      Default |
|                                         |                        |             Disabled |
+-----------------------------------------+------------------------+----------------------+
|   1  NVIDIA A100-SXM4-80GB          On  |   00000000:0F:00.0 Off |                    0 |
| N/A   33C    P0              64W / 400W |   70112MiB /  81920MiB |      0%      Default |
+-----------------------------------------------------------------------------------------+
| Processes:                                                                              |
|    0   N/A  N/A     20100      C   /usr/bin/python3                            70100MiB |
+-----------------------------------------------------------------------------------------+"""
NVLINK = """### gx-1: nvidia-smi nvlink -e
GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1b2c)
\t Link 0: Replay Errors: 0
\t Link 3: CRC FLIT Errors: 12
GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-9a8b)
\t Link 7: Replay Errors: 4"""
QUERY = """GPU 00000000:07:00.0
    Clocks Event Reasons
        Idle                              : Not Active
        HW Slowdown                       : Active
            HW Thermal Slowdown           : Active
    ECC Errors
        Volatile
            SRAM Correctable              : 0
            DRAM Uncorrectable            : 3"""
ROCM = """GPU  Temp (DieEdge)  AvgPwr  SCLK     MCLK     Fan     Perf  PwrCap  VRAM%  GPU%
0    35.0c           96.0W   800Mhz   1600Mhz  0%      auto  300.0W  91%    0%
1    37.0c           290.0W  1700Mhz  1600Mhz  0%      auto  300.0W  91%    100%"""
AMD = """GPU  POWER  GPU_T  MEM_T  GFX_CLK  GFX%  MEM%
  0    96 W   36 °C   40 °C   132 MHz   0 %   0 %
  1   600 W   66 °C   60 °C   2100 MHz   100 %   31 %"""
DMON = """# gpu    pwr  gtemp  mtemp     sm    mem    enc    dec
# Idx      W      C      C      %      %      %      %
    0     96     36      -    100      1      0      0
    1     64     33      -      0      0      0      0"""
SAMPLES = (CSV, TABLE, NVLINK, QUERY, ROCM, AMD, DMON)


def samples(text: str) -> list[tuple[Any, ...]]:
    return [
        (fact["index"], fact["util"], fact["power_w"], fact["mem_mib"], fact["throttle"])
        for fact in facts_of(text, "smi.txt")
        if fact.kind == "gpu_sample"
    ]


def test_csv_by_its_header() -> None:
    assert samples(CSV) == [(0, 100, 96.25, 70112, None), (1, 0, 64.67, 70112, None)]
    assert [fact.clock for fact in facts_of(CSV, "vx-1.smi.csv")] == ["wall", "wall"]
    other = "utilization.gpu [%], pci.bus_id, index\n7 %, 00000000:1B:00.0, 2"
    (fact,) = facts_of(other, "smi.csv")
    assert (fact["index"], fact["util"], fact.who.gpu) == (2, 7, "00000000:1B:00.0")


def test_csv_without_header() -> None:
    assert samples("$ nvidia-smi --query-gpu=index,utilization.gpu --format=csv,noheader\n0, 0 %\n1, 100 %") == [
        (0, 0, None, None, None),
        (1, 100, None, None, None),
    ]


def test_rank_of_the_file_is_not_the_gpus() -> None:
    assert {fact.rank for fact in facts_of(CSV, "workers-rank0.txt")} == {None}


def test_throttling() -> None:
    text = "index, utilization.gpu [%], clocks_throttle_reasons.gpu_idle, clocks_throttle_reasons.hw_slowdown, clocks_event_reasons.sw_power_cap\n3, 100 %, Not Active, Active, Active"
    assert samples(text) == [(3, 100, None, None, "hw_slowdown,sw_power_cap")]
    mask = "index, utilization.gpu [%], clocks_event_reasons.active\n0, 100 %, 0x0000000000000001\n1, 100 %, 0x0000000000000048"
    assert [found[4] for found in samples(mask)] == [None, "hw_slowdown,hw_thermal_slowdown"]
    throttled = [fact for fact in facts_of(QUERY, "q.txt") if fact.kind == "gpu_sample"]
    assert [(fact["throttle"], fact.who.gpu) for fact in throttled] == [
        ("hw_slowdown", "00000000:07:00.0"),
        ("hw_thermal_slowdown", "00000000:07:00.0"),
    ]


def test_table() -> None:
    assert samples(TABLE) == [(0, 100, 96, 70112, None), (1, 0, 64, 70112, None)]
    member = one(TABLE, "member", "nvidia-smi.txt")
    assert (member.who.pid, member.who.gpu) == (20100, "0")


def test_labels_of_pdsh_in_a_part_of_the_file() -> None:
    text = "# both nodes\nkite21: index, utilization.gpu [%]\nkite21: 0, 100 %\nkite34: index, utilization.gpu [%]\nkite34: 0, 3 %\n\nThe rest\nis what\nsomebody\nwrote"
    assert [(fact.who.host, fact["index"], fact["util"]) for fact in facts_of(text, "during_hang.txt")] == [
        ("kite21", 0, 100),
        ("kite34", 0, 3),
    ]


def test_access_control() -> None:
    assert one("\t\tACSCtl:\tSrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+", "p2p_info")
    assert one(
        "[Tue Jun  9 22:04:36 2026] nvidia 0000:41:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0031 address=0x38067ff000 flags=0x0030]",
        "p2p_info",
    )


def test_errors() -> None:
    assert [(fact.who.host, fact["name"], fact["value"], fact["device"]) for fact in facts_of(NVLINK, "n.txt")] == [
        ("gx-1", "nvlink_replay_errors", 0, "gpu 0 link 0"),
        ("gx-1", "nvlink_crc_flit_errors", 12, "gpu 0 link 3"),
        ("gx-1", "nvlink_replay_errors", 4, "gpu 1 link 7"),
    ]
    assert [(fact["name"], fact["value"]) for fact in facts_of(QUERY, "q.txt") if fact.kind == "counter"] == [
        ("ecc_dram_uncorrectable", 3)
    ]


def test_volatile_and_aggregate_counts_are_not_one_counter() -> None:
    text = """GPU 00000000:07:00.0
    ECC Errors
        Volatile
            DRAM Uncorrectable                : 0
        Aggregate
            DRAM Uncorrectable                : 9
    Remapped Rows
        Correctable Error                     : 1
        Uncorrectable Error                   : 2
        Pending                               : Yes
        Remapping Failure Occurred            : No"""
    assert [(fact["name"], fact["value"]) for fact in facts_of(text, "q.txt") if fact.kind == "counter"] == [
        ("ecc_dram_uncorrectable", 0),
        ("ecc_aggregate_dram_uncorrectable", 9),
        ("ecc_remapped_rows_uncorrectable_error", 2),
        ("ecc_remapped_rows_pending", 1),
        ("ecc_remapped_rows_remapping_failure_occurred", 0),
    ]


def test_a_gpu_that_answers_nothing() -> None:
    table = """+-------------------------------+----------------------+----------------------+
|   4  NVIDIA A40          On   | 00000000:82:00.0 Off |                    0 |
|  0%   30C    P8    14W / 300W |      0MiB / 46068MiB |      0%      Default |
|                               |                      |                  N/A |
+-------------------------------+----------------------+----------------------+
|   5  ERR!                On   | 00000000:91:00.0 Off |                 ERR! |
|ERR!  ERR! ERR!    ERR! / ERR! |      0MiB / 81920MiB |    ERR!      Default |
|                               |                      |                 ERR! |"""
    lost = one(table, "gpu_lost", "smi.txt")
    assert (lost["index"], lost["device"]) == (5, "00000000:91:00.0")
    assert [found[0] for found in samples(table)] == [4]
    assert one("No devices were found", "gpu_lost", "smi.txt")
    requires = "index, utilization.gpu [%]\n3, [GPU requires reset]"
    assert one(requires, "gpu_lost", "smi.csv")["index"] == 3


def test_not_supported_is_not_lost() -> None:
    text = "index, utilization.gpu [%], fan.speed [%], power.draw [W]\n0, [N/A], [Not Supported], 68.12 W\n1, 7 %, [N/A], [N/A]"
    assert samples(text) == [(0, None, 68.12, None, None), (1, 7, None, None, None)]
    assert {fact.kind for fact in facts_of(text, "smi.csv")} == {"gpu_sample"}


def test_multi_instance_gpus() -> None:
    """Driver 470: no utilisation, the instances' lines are no GPUs, the processes carry their instance."""
    text = """|   0  NVIDIA A100-SXM...  On   | 00000000:36:00.0 Off |                   On |
| N/A   29C    P0    62W / 400W |  19965MiB / 40536MiB |     N/A      Default |
|                               |                      |              Enabled |
+-----------------------------------------------------------------------------+
| MIG devices:                                                                |
|  0    1   0   0  |  11MiB / 20096MiB    | 42      0 |  3   0    2    0    0 |
| Processes:                                                                  |
|    0    1    0       2241      C   python                          19954MiB |"""
    assert samples(text) == [(0, None, 62, 19965, None)]
    assert (one(text, "member", "smi.txt").who.pid, one(text, "member", "smi.txt").who.gpu) == (2241, "0")


def test_compute_apps() -> None:
    text = "pid, process_name, used_gpu_memory [MiB], gpu_bus_id\n2241, python, 19954 MiB, 00000000:36:00.0"
    assert [(fact.who.pid, fact.who.gpu) for fact in facts_of(text, "apps.csv") if fact.kind == "member"] == [
        (2241, "00000000:36:00.0")
    ]


def test_lost() -> None:
    assert (
        one("Unable to determine the device handle for GPU0000:81:00.0: Unknown Error", "gpu_lost")["device"]
        == "0000:81:00.0"
    )
    assert (
        one(
            "Unable to determine the device handle for GPU 0000:81:00.0: GPU is lost.  Reboot the system to recover this GPU",
            "gpu_lost",
        )["device"]
        == "0000:81:00.0"
    )
    assert one("index, utilization.gpu [%]\n5, [GPU is lost]", "gpu_lost")["index"] == 5


def test_other_tools() -> None:
    assert [found[:3] for found in samples(ROCM)] == [(0, 0, 96.0), (1, 100, 290.0)]
    assert [found[:3] for found in samples(AMD)] == [(0, 0, 96), (1, 100, 600)]
    assert [found[:3] for found in samples(DMON)] == [(0, 100, 96), (1, 0, 64)]


def test_not_too_many() -> None:
    text = "index, utilization.gpu [%]\n" + "\n".join(f"{n % 8}, 100 %" for n in range(5000))
    assert len(facts_of(text, "smi.csv")) == 2000


def test_ordinary_tables_mean_nothing() -> None:
    assert (
        facts_of(
            "|   epoch | loss   |\n|   1     | 2.0    |\nGPU 0: training\nGPU 0: loss 2.0 (UUID)\nGPU memory: 70 GB, index, 3\n1, 2, 3"
        )
        == []
    )


@given(st.integers(0, 2**32))
def test_survives_noise(seed: int) -> None:
    text = random.Random(seed).choice(SAMPLES)
    found = [essence(fact) for fact in facts_of(disturbed(text.split("\n"), seed), "notes.txt")]
    assert all(essence(fact) in found for fact in facts_of(text, "notes.txt"))

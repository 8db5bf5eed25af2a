"""Tables by columns: nvidia-smi dmon and pmon, amd-smi, rocm-smi, dcgmi."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reading import disturbed, essence, facts_of, one

MONITOR = """GPU  XCP  POWER  PWR_CAP   GPU_T   MEM_T   GFX_CLK   GFX%   MEM%  MEM_CLOCK
  0    0  251 W   1000 W   55 °C   43 °C   144 MHz    0 %    0 %   1900 MHz
  1    0  758 W   1000 W   71 °C   60 °C  2100 MHz  100 %   31 %   1900 MHz
  2    0    N/A      N/A     N/A     N/A       N/A    N/A    N/A        N/A"""
WATCH = """ TIMESTAMP  GPU  POWER   GPU_T   MEM_T   GFX_CLK   GFX%   MEM%   ENC%   DEC%      VRAM_USAGE
1753969973    0  750 W   69 °C   50 °C  1278 MHz  100 %    1 %    N/A    0 %    2.0/192.0 GB
1753969973    1  178 W   47 °C   38 °C  2105 MHz    0 %    0 %    N/A    0 %    1.7/192.0 GB"""
CONCISE = """======================================== ROCm System Management Interface ========================================
================================================== Concise Info ==================================================
Device  Node  IDs              Temp        Power     Partitions          SCLK    MCLK    Fan  Perf  PwrCap  VRAM%  GPU%
              (DID,     GUID)  (Junction)  (Socket)  (Mem, Compute, ID)
==================================================================================================================
0       1     0x74a1,   28851  40.0°C      132.0W    NPS1, SPX, 0        132Mhz  900Mhz  0%   auto  750.0W  0%     0%
1       2     0x74a1,   51499  71.0°C      750.0W    NPS1, SPX, 0        2100Mhz 900Mhz  0%   auto  750.0W  91%    100%"""
DMON = """#Date       Time        gpu    pwr  gtemp  mtemp     sm    mem    enc    dec    jpg    ofa   mclk   pclk
#YYYYMMDD   HH:MM:SS    Idx      W      C      C      %      %      %      %      %      %    MHz    MHz
 20260814   11:05:00      0     96     36     40    100      1      0      0      0      0   1593   1410
 20260814   11:05:00      1     64     33      -      0      0      0      0      0      0   1593   1155"""
PMON = """# gpu         pid  type    sm    mem    enc    dec    command
# Idx           #   C/G     %      %      %      %    name
    0      10101     C     99      1      -      -    python
    1          -     -      -      -      -      -    -"""
METRIC = """GPU: 0
    USAGE:
        GFX_ACTIVITY: 100 %
        UMC_ACTIVITY: 0 %
    ECC:
        TOTAL_CORRECTABLE_COUNT: 4
        TOTAL_UNCORRECTABLE_COUNT: 2
GPU: 1
    PROCESS_INFO:
        NAME: python3
        PID: 2266127
        MEMORY_USAGE:
            VRAM_MEM: 1.9 GB"""
HEALTH = """Health Monitor Report
+---------------------------+----------------------------------------------------------+
| Overall Health            | Failure                                                  |
+---------------------------+----------------------------------------------------------+
| -> 2                      | Warning                                                  |
| -> 3                      | Failure                                                  |"""
SAMPLES = (MONITOR, WATCH, CONCISE, DMON, PMON, METRIC, HEALTH)


def samples(text: str | bytes, name: str = "gpus.txt") -> list[tuple[Any, ...]]:
    return [
        (fact["index"], fact["util"], fact["power_w"]) for fact in facts_of(text, name) if fact.kind == "gpu_sample"
    ]


@pytest.mark.parametrize(
    ("text", "want"),
    [
        (MONITOR, [(0, 0, 251), (1, 100, 758)]),
        (WATCH, [(0, 100, 750), (1, 0, 178)]),
        (CONCISE, [(0, 0, 132.0), (1, 100, 750.0)]),
        (DMON, [(0, 100, 96), (1, 0, 64)]),
        (PMON, [(0, 99, None)]),
        (METRIC, [(0, 100, None)]),
        ("GPU[0]\t\t: GPU use (%): 0\nGPU[1]\t\t: GPU use (%): 99", [(0, 0, None), (1, 99, None)]),
        ("device,GPU use (%),VRAM Total Memory (B),VRAM Total Used Memory (B)\ncard0,2,68702699520,10977280\ncard3,70,68702699520,0", [(0, 2, None), (3, 70, None)]),
        ("# EntityId      GPUTL       MCUTL  DRAMA\n    GPU 2          79          43  0.382", [(2, 79, None)]),
        ("#Entity   TMPTR        POWER             GPUTL             FBUSD\nID         C            W\nGPU 7     45           57.430            0                 0", [(7, 0, 57.43)]),
        ("#Entity   GPUTL  POWER\nID\nGPU 0     100    231.5\nGPU 1     0      70.1", [(0, 100, 231.5), (1, 0, 70.1)]),
    ],
)  # fmt: skip
def test_utilisation(text: str, want: list[tuple[Any, ...]]) -> None:
    assert samples(text) == want


def test_json_of_rocm_smi_behind_a_warning() -> None:
    cards = {
        "card0": {"GPU use (%)": "68", "Average Graphics Package Power (W)": "235.5", "VRAM Total Used Memory (B)": "28823961600"},
        "card1": {"GPU use (%)": "N/A", "Card Series": "Instinct MI250X"},
        "system": {"Driver version": "6.3.6"},
    }  # fmt: skip
    text = "WARNING: AMD GPU device(s) is/are in a low-power state.\n" + json.dumps(cards, indent=2)
    assert samples(text, "gx-1.rocm-smi.json") == [(0, 68, 235.5)]


def test_json_of_amd_smi() -> None:
    gpus = [
        {"gpu": number, "usage": {"gfx_activity": {"value": 100 * number, "unit": "%"}, "umc_activity": "N/A"}, "power": {"socket_power": {"value": 140, "unit": "W"}}}
        for number in range(2)
    ]  # fmt: skip
    assert samples(json.dumps(gpus, indent=4), "m.json") == [(0, 0, 140), (1, 100, 140)]
    assert samples(json.dumps({"gpu_data": gpus}, indent=4), "m.json") == [(0, 0, 140), (1, 100, 140)]


@pytest.mark.parametrize("cut", [40, 200, 333])
def test_json_that_ends_early_is_a_gap_and_no_crash(cut: int) -> None:
    from whichrank.evidence import Evidence, read_piece

    text = json.dumps([{"gpu": n, "usage": {"gfx_activity": {"value": 1, "unit": "%"}}} for n in range(8)])[:cut]
    evidence = Evidence()
    read_piece("m.json", text.encode(), evidence)
    assert [fact for fact in evidence.facts if fact.kind == "gpu_sample"] == []


def test_processes() -> None:
    assert [(fact.who.pid, fact.who.gpu) for fact in facts_of(PMON, "pmon.txt") if fact.kind == "member"] == [
        (10101, "0")
    ]
    member = one(METRIC, "member", "amd.txt")
    assert (member.who.pid, member.who.gpu) == (2266127, "1")


def test_only_uncorrected_errors_count() -> None:
    counter = one(METRIC, "counter", "amd.txt")
    assert (counter["name"], counter["value"], counter["device"]) == ("ecc_total_uncorrectable_count", 2, "gpu 0")


def test_health() -> None:
    assert [(fact["index"], fact["state"]) for fact in facts_of(HEALTH, "dcgmi.txt")] == [
        (2, "warning"),
        (3, "failure"),
    ]
    assert facts_of("| -> 3                      | Failure   |", "dcgmi.txt") == []


def test_diagnosis_of_dcgm() -> None:
    text = """+---------------------------+------------------------------------------------+
| Diagnostic                | Result                                         |
+===========================+================================================+
|-----  Deployment  --------+------------------------------------------------|
| Denylist                  | Pass                                           |
|-----  Hardware  ----------+------------------------------------------------|
| GPU Memory                | Pass - GPUs: 1, 2, 3, 4, 5, 6, 7               |
|                           | Fail - GPU: 0                                  |
| Warning                   | GPU 0 Thermal violations totaling 13.3 second  |
| PCIe                      | Fail - GPUs: 2, 3                              |"""
    assert [(fact["index"], fact["test"]) for fact in facts_of(text, "diag.txt") if fact.kind == "gpu_health"] == [
        (0, "GPU Memory"),
        (2, "PCIe"),
        (3, "PCIe"),
    ]


def test_bus_ids() -> None:
    found = facts_of("GPU[0]\t\t: PCI Bus: 0000:1D:00.0\nGPU[7]\t\t: PCI Bus: 0000:DD:00.0", "showbus.txt")
    assert [fact["ids"] for fact in found] == [[(0, "0000:1d:00.0")], [(7, "0000:dd:00.0")]]


@pytest.mark.parametrize(
    "text", ["GPU: 0 is busy", "GPU% of the run: 3", "gpu pwr sm", "loss 2.0 sm 3", "GPU: 3\nstep 4"]
)
def test_ordinary_output_means_nothing(text: str) -> None:
    assert facts_of(text) == []


@given(st.integers(0, 2**32), st.sampled_from(SAMPLES))
def test_survives_noise(seed: int, text: str) -> None:
    found = [essence(fact) for fact in facts_of(disturbed(text.split("\n"), seed), "notes.txt")]
    assert all(essence(fact) in found for fact in facts_of(text, "notes.txt"))

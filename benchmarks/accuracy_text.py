"""The words around the accuracy table of the README."""

from __future__ import annotations

HEAD = """`planner validate FILE.csv` predicts published (or your own) runs and compares; `python -m benchmarks.accuracy` prints
this table. *Fitted*: the constants that ship; of the two vTrain files only rows that were not fitted count. *Left
out*: refitted without the file, a software profile that only this file shows taking the mean of the others. *Left out
+ 5 rows*: then calibrated on five of its rows (`planner calibrate`), scored on the rest, mean of four draws. Errors
are |predicted / measured - 1|; files in which no row states all of its layout are scored as completed by the
predicted-fastest legal values that fit. The form of the model was developed while looking at these files: a left-out
figure is blind in constants, not in structure. Memory constants were set on the same readings.
"""
REASONS = {
    "vtrain_multi_node.beside.tau": "39.1B at tp 2 and 4 ran slower than its neighbours by up to a third: cluster state.",
    "vtrain_multi_node": (
        "Twenty rows carry it: 39.1B at tp 2 and 4, 3.6B at mbs 2 (neighbours fit within 3 %), one at the memory limit."
    ),
    "vtrain_single_node": "Half-launch-bound cells: time a layer is not monotone in the micro-batch, host jitter between ranks.",
    "torchtitan": "Rows alike in every column differ by 10 to 28 %: eager or compiled, vanilla or async TP, in the notes only.",
    "megatron_moe_modelzoo": (
        "Layouts with and without 1F1B expert overlap differ by 12 %, no column tells; experts' rates are microbenchmarks'."
    ),
    "megatron_bridge_moe": "Recompute and overlap recipes are unstated; rates of Blackwell and of experts are microbenchmarks'.",
    "nvidia_nemo_2024": "Recompute and tensor-overlap recipes are unstated; two releases of one layout differ by 4 %.",
    "bigscience_176b_a100": "Nobody can guess CUDA_LAUNCH_BLOCKING without its rows; repeated layouts differ by up to 9 %.",
    "bigscience_v100": "The source warns of run-to-run noise of up to 40 %; step times are rounded to a second.",
    "mosaicml_mpt_a100": "Long sequences rest on one rate of the Triton kernel; the 40 GB rows run at the memory limit.",
    "internevo": "The broadcast of parameters per rank is a habit of this framework alone.",
    "ibm_fms_fsdp": "The share of recomputed blocks is unstated: the least that fits is taken.",
    "megatron_core_h100": "Micro-batch, virtual stages and recompute are unstated.",
}
"""what is thought to be behind a missed figure, by the longest beginning of its name"""


def reason(name: str) -> str:
    """Of a missed figure."""
    begins = [begin for begin in REASONS if name.startswith(begin)]
    return REASONS[max(begins, key=len)] if begins else ""

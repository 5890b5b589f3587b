"""DFlash: a small block-diffusion network fills a block of masks in one pass (arXiv 2602.06036).

It reads the target's features as KV. Leaves out the projection of the features of new tokens into that KV.
"""

from simulator.speculation import register
from simulator.speculation.base import Method
from simulator.speculation.shape import ParallelChain

DFLASH = register(
    Method(
        name="dflash",
        title="block drafter, one pass over the block",
        source="arXiv 2602.06036; vLLM v1/spec_decode/dflash.py",
        drafter="dflash",
        shape=ParallelChain(further_rows=1),
        first_pass_reads_tokens=False,
        slots_per_draft=1,
        loses_last_match=True,
        engines={"vllm": "0.32", "sglang": "0.5.23", "trtllm": "1.x"},
    )
)

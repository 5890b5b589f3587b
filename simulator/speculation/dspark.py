"""DSpark: DFlash whose drafts are corrected one after the other by a low-rank Markov head, in the same pass.

Leaves out what DFlash does, and that the Markov head's weights are read once per draft.
"""

from simulator.speculation import register
from simulator.speculation.base import Method
from simulator.speculation.shape import ParallelChain

DSPARK = register(
    Method(
        name="dspark",
        title="block drafter with a Markov head, one pass over the block",
        source="github.com/deepseek-ai/DeepSpec; vllm-project/vllm#46995",
        drafter="dspark",
        shape=ParallelChain(),
        first_pass_reads_tokens=False,
        slots_per_request=-1,
        slots_per_draft=1,
        loses_last_match=True,
        engines={"vllm": "0.32", "sglang": "0.5.23", "trtllm": "1.x"},
    )
)

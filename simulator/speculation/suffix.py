"""Suffix decoding: the tokens that followed the longest match in earlier outputs and the prompt. They are no
more than the tokens that matched (arXiv 2411.04975).
"""

from simulator.speculation import register
from simulator.speculation.base import Method

SUFFIX = register(
    Method(
        name="suffix",
        title="suffix lookup in prompt and earlier outputs",
        source="arXiv 2411.04975; vLLM v1/spec_decode/suffix_decoding.py",
        drafter=None,
        drafter_has_kv=False,
        host_lookup=True,
        engines={"vllm": "0.12+"},
    )
)

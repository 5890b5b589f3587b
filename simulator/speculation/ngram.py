"""n-gram, or prompt lookup: where the last tokens occur earlier in the context, the tokens that followed
there are the drafts.
"""

from simulator.speculation import register
from simulator.speculation.base import Method

NGRAM = register(
    Method(
        name="ngram",
        title="n-gram lookup in the context",
        source="github.com/apoorvumang/prompt-lookup-decoding; vLLM v1/spec_decode/ngram_proposer{,_gpu}.py",
        drafter=None,
        drafter_has_kv=False,
        host_lookup=True,
        gpu_lookup=True,
        engines={"vllm": "0.4+", "sglang": "0.5.23", "trtllm": "1.x"},
    )
)

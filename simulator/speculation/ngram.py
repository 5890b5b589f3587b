"""n-gram: the longest match of the last tokens earlier in the context proposes
what followed there (prompt lookup).
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
    )
)

"""MagicDec: the target drafts for itself on a sparse part of its KV (arXiv 2408.11049)."""

from simulator.speculation import register
from simulator.speculation.base import Method
from simulator.speculation.shape import Chain

MAGICDEC = register(
    Method(
        name="magicdec",
        title="the target on sparse KV, chain",
        source="arXiv 2408.11049; github.com/Infini-AI-Lab/MagicDec",
        drafter="sparse_kv",
        shape=Chain(first_pass_rows=1),
        first_pass_reads_tokens=False,
        drafter_has_kv=False,
        draft_from_target=True,
    )
)

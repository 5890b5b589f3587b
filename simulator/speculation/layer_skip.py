"""Layer-skipping: the target drafts for itself with a part of its layers (arXiv 2309.08168, 2404.16710)."""

from simulator.speculation import register
from simulator.speculation.base import Method
from simulator.speculation.shape import Chain

LAYER_SKIP = register(
    Method(
        name="layer_skip",
        title="some layers of the target, chain",
        source="arXiv 2309.08168, 2404.16710",
        drafter="layer_skip",
        shape=Chain(first_pass_rows=1),
        first_pass_reads_tokens=False,
        drafter_has_kv=False,
        draft_from_target=True,
    )
)

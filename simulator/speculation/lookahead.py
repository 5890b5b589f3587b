"""Lookahead decoding: the target itself guesses n-grams by Jacobi iteration and verifies earlier ones in the
same pass (arXiv 2402.02057).

`draft_length` K is the length of an n-gram less one, `window` its window and the n-grams that it verifies.
"""

from simulator.speculation import register
from simulator.speculation.base import Method
from simulator.speculation.tree_shape import LookaheadShape

LOOKAHEAD = register(
    Method(
        name="lookahead",
        title="lookahead decoding: window and n-gram branches of the target",
        source="arXiv 2402.02057; github.com/hao-ai-lab/LookaheadDecoding",
        drafter=None,
        shape=LookaheadShape(),
        drafter_has_kv=False,
        engines={"trtllm": "older releases"},
    )
)

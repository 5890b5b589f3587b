"""What the shipped profiles cost is what it was before devices of one's own could be measured, but for
TensorRT-LLM's own all-reduces and fp8 matrices, which came later. Host times are left out: fits renew them.
"""

import pytest

from tests.unit.test_cost import cost_model

_ROUNDING = 1e-12
"""What another machine's logarithms may change."""

PRICES_S = {
    ("dense", "h100-sxm", "vllm-0.33"): (0.0182448663633837, 0.0004636585427370203, 0.0001383769791044776),
    ("dense", "h200-sxm", "trtllm-1"): (0.0149715063072475, 0.0003400120383497, 0.0001328256),
    ("dense", "a100-sxm-80gb", "sglang-0.5"): (
        0.035868,
        0.0007303034088387936,
        0.00015019268268759195,
    ),
    ("small", "h100-sxm", "vllm-0.33"): (0.0102726802227549, 0.002136769034038449, 0.0001383769791044776),
    ("small", "h200-sxm", "trtllm-1"): (0.00786527422304, 0.0016273781026192385, 0.0001328256),
    ("small", "a100-sxm-80gb", "sglang-0.5"): (
        0.0171355641240513,
        0.003205104242566041,
        0.00015019268268759195,
    ),
    ("moe", "h100-sxm", "vllm-0.33"): (0.0226252251741099, 0, 0.00012458507462686567),
    ("moe", "h200-sxm", "trtllm-1"): (0.0169819222749443, 0, 0.00012319999999999999),
    ("moe", "a100-sxm-80gb", "sglang-0.5"): (0.0383634559338071, 0, 0.00012753310446297203),
    ("mla", "h100-sxm", "vllm-0.33"): (0.0379308602498248, 0.0006123725360415563, 0.00013852370149253733),
    ("mla", "h200-sxm", "trtllm-1"): (0.0313568102599581, 0.0005644394710624227, 0.00013292799999999998),
    ("mla", "a100-sxm-80gb", "sglang-0.5"): (0.084252, 0.0010785744249308035, 0.00015043374203040706),
    ("sparse", "h100-sxm", "vllm-0.33"): (0.0403791309737772, 0, 0.00013852370149253733),
    ("sparse", "h200-sxm", "trtllm-1"): (0.0338167243258991, 0, 0.00013292799999999998),
    ("sparse", "a100-sxm-80gb", "sglang-0.5"): (0.096208, 0, 0.00015043374203040706),
    ("compressed", "h100-sxm", "vllm-0.33"): (0.0178313686274332, 0, 0.00013852370149253733),
    ("compressed", "h200-sxm", "trtllm-1"): (0.0181549917642127, 0, 0.00013292799999999998),
    ("compressed", "a100-sxm-80gb", "sglang-0.5"): (0.075152, 0, 0.00015043374203040706),
    ("sliding", "h100-sxm", "vllm-0.33"): (0.0156966462415569, 0, 0.00014881260895522388),
    ("sliding", "h200-sxm", "trtllm-1"): (0.0147201773369456, 0, 0.00014010879999999998),
    ("sliding", "a100-sxm-80gb", "sglang-0.5"): (0.0277544451722406, 0, 0.0001673380284453163),
    ("linear", "h100-sxm", "vllm-0.33"): (0.026423088528143, 0, 0.0001417699343283582),
    ("linear", "h200-sxm", "trtllm-1"): (0.0203116746976091, 0, 0.0001351936),
    ("linear", "a100-sxm-80gb", "sglang-0.5"): (0.0421820835683013, 0, 0.00015576717999019125),
}
"""(case, GPU, preset) → s of a mixed step launched eagerly, of a drafter's pass (0: none), of accepting."""
_SEQUENCES = 33
"""That mixed step's: 32 decode, one prefills."""


@pytest.mark.parametrize("setting", PRICES_S, ids="-".join)
def test_prices_of_shipped_profiles_stay(setting: tuple[str, str, str]) -> None:
    case, gpu, preset = setting
    cost = cost_model(case, gpu, preset, "fp8")
    step = cost.target_pass(96, 32, 32 * 3000, 3, ((64, 512),), 96, "eager").duration_s
    step -= cost.preset.host.exposed_s(_SEQUENCES)
    draft = 0.0
    if cost.drafter:
        draft = cost.draft_pass(32, 32, 32 * 3000, 1, logit_rows=32).duration_s
        draft -= cost.preset.host.draft_pass_s
    result = (step, draft, cost.sample(96).duration_s)
    assert result == pytest.approx(PRICES_S[setting], rel=_ROUNDING, abs=0)
    assert (cost.profile.rest_of_layer(1.0), cost.profile.preparation(1.0)) == (None, None)
    assert (cost.profile.draft_sampler(), cost.profile.eager_call_us()) == (None, None)

"""Rules of thumb that closed forms and the simulator answer, for Llama-3.3-70B with EAGLE-3 on H100s."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from calibration.acceptance.claims.claim import Claim, band_of, known, table, with_band
from simulator.breakeven.theory import acceptance_rate, tokens_per_verify
from simulator.models.catalogue import load_model
from simulator.results.estimate import Estimate
from simulator.results.summary import STEP_BAND

if TYPE_CHECKING:
    from simulator.breakeven.answer import BreakEvenRow
    from simulator.results.result import Result

SCENARIO = "examples/textbook-h100.yaml"
_PATH = Path(__file__).resolve().parents[3] / SCENARIO
_SHORTER = ("workload.requests=400", "run.replications=3")
ALPHA = 0.7
"""The scenario's own acceptance."""


def run(*changes: str) -> Result:
    """Simulate the scenario with changes, fewer requests than its own."""
    from simulator.scenario import load_scenario
    from simulator.simulation import simulate

    return simulate(load_scenario(_PATH, [*_SHORTER, *changes]), keep_requests=False)


def speedup(*changes: str) -> Estimate:
    """Throughput with speculation ÷ without."""
    return known(run(*changes).comparison["eagle3"].ratios["throughput_speedup"])


def command(*changes: str, name: str = "simulate") -> str:
    """The command that shows a run."""
    return " ".join([f"decodesim {name} {SCENARIO}", *(f"--set '{change}'" for change in changes)])


@cache
def needed(concurrency: int, draft_length: int) -> BreakEvenRow:
    """The break-even of the scenario at a load and a draft length."""
    from simulator.breakeven.breakeven import breakeven
    from simulator.scenario import load_scenario

    scenario = load_scenario(_PATH, ["workload.requests=800"])
    return breakeven(scenario, [{"concurrency": concurrency}], [draft_length]).rows[0]


def tokens_per_round() -> Claim:
    """E = 1 + Kα."""
    lengths = (1, 3, 5, 7)
    rows = [[f"{k}", f"{1 + k * ALPHA:.2f}", f"{tokens_per_verify(ALPHA, k):.2f}"] for k in lengths]
    simulated = known(run().variants["eagle3"]["mean_acceptance_length"])
    rates = ", ".join(f"{acceptance_rate(ALPHA, k):.2f}" for k in lengths)
    return Claim(
        "E = 1 + Kα tokens come out of a round.",
        "holds where",
        "α is accepted ÷ drafted at that very K; for acceptance per token it is wrong beyond K = 1",
        "Per token, a draft counts only if all before it survived, so no K yields more than 1 ÷ (1 − α). "
        f"At α = {ALPHA}:\n\n{table(['K', '1 + Kα', '(1 − α^(K+1)) ÷ (1 − α)'], rows)}\n\n"
        f"The simulation of K = 3 gives {with_band(simulated)}. With accepted ÷ drafted the formula is an "
        f"identity, and its α falls with K: {rates} in the rows above.",
        command(),
        borne_out=abs(simulated.value / tokens_per_verify(ALPHA, 3) - 1.0) < 0.02,
    )


def three_per_cent() -> Claim:
    """Break-even = overhead / K ≈ 0.03."""
    loads, length = (1, 64, 256), 3
    overheads = {load: known(needed(load, length).overhead) for load in loads}
    # The band of a round's time, as everywhere: 10 % to either side.
    linear = {
        load: tuple((overhead + scale * (1.0 + overhead)) / length for scale in (-STEP_BAND, 0.0, STEP_BAND))
        for load, overhead in overheads.items()
    }
    cells = [
        [
            f"{load}",
            f"{overheads[load]:.0%}",
            "{1:.2f} [{0:.2f}, {2:.2f}]".format(*linear[load]),
            with_band(needed(load, length).simulated_alpha),
        ]
        for load in loads
    ]
    columns = ["clients", "overhead of a round", "needed: accepted ÷ drafted", "needed: α per token"]
    return Claim(
        "Break-even is at overhead ÷ K, about 0.03.",
        "holds where",
        "accepted ÷ drafted is meant; the number may do for a single client, and is wrong under load",
        f"K = {length}:\n\n{table(columns, cells)}\n\n0.03 needs a round that costs 9 % more than a "
        "plain step. "
        "And accepted ÷ drafted is not α: the same point lies higher in acceptance per token.",
        f"decodesim breakeven {SCENARIO} --concurrency 1,64,256 --draft-length 3",
        borne_out=linear[1][0] < 0.03 < linear[1][1] and min(linear[64][0], linear[256][0]) > 0.03,
    )


def high_concurrency() -> Claim:
    """Below α 0.55 it loses at high concurrency."""
    loads, lengths, said = (16, 64, 128, 256), (1, 3), 0.55
    found = {(load, k): needed(load, k).simulated_alpha for k in lengths for load in loads}
    cells = [[f"{load}", *(with_band(found[load, k]) for k in lengths)] for load in loads]
    bands = {case: band_of(estimate) for case, estimate in found.items()}
    here = [f"{load} clients and K = {k}" for (load, k), (low, high) in bands.items() if low < said < high]
    return Claim(
        "Below α = 0.55 speculation loses at high concurrency.",
        "holds where",
        f"the load is just so: {', '.join(here)}; elsewhere another number does",
        f"{table(['clients', *(f'needed α, K = {k}' for k in lengths)], cells)}\n\n"
        "There is no one threshold: it follows batch, K and context. At 64 clients less is enough; at "
        "256, with "
        "K = 3, 0.55 is not.",
        f"decodesim breakeven {SCENARIO} --concurrency 16,64,128,256 --draft-length 1,3",
        borne_out=bool(here) and max(bands[64, k][1] for k in lengths) < said < bands[256, 3][0],
    )


def second_pass() -> Claim:
    """A rejected draft costs a second pass."""
    change = "speculation.eagle3.acceptance.alpha=0"
    result = run(change)
    length = known(result.variants["eagle3"]["mean_acceptance_length"])
    ratio = known(result.comparison["eagle3"].ratios["throughput_speedup"])
    overhead = known(needed(64, 3).overhead)
    return Claim(
        "A rejected draft costs a second pass of the target.",
        "wrong",
        "",
        "The pass that rejects a draft has the target's law at that place, and the token in its stead "
        "is drawn from what is left of it, or is its argmax. Even if every draft is rejected a round "
        f"emits one token: simulated, {with_band(length)} tokens a round and {with_band(ratio)} × plain "
        f"at 64 clients, where the round's own overhead of {overhead:.0%} leaves "
        f"{1 / (1 + overhead):.2f}; with a second pass it would be {1 / (2 + overhead):.2f}. The decode "
        "loop on real models calls the target once a round, and a test counts.",
        command(change),
        borne_out=length.value == 1.0 and band_of(ratio)[0] > 1 / (2 + overhead),
    )


def bytes_of_70b() -> Claim:
    """A 70B FP8 decode reads 140 GB per token."""
    model = load_model("llama-3.3-70b-instruct")
    fp8, bf16 = (model.with_weights(weights).weight_bytes() / 1e9 for weights in ("fp8", "bf16"))
    return Claim(
        "A 70B decode in FP8 reads 140 GB per token.",
        "wrong",
        "",
        f"FP8 weights are {fp8:.0f} GB; {bf16:.0f} GB are those in BF16. And they are read once a step: "
        f"shared by 64 requests that is {fp8 / 64:.1f} GB a token, and less again with a round that "
        "emits several.",
        command(name="memory"),
        borne_out=65 < fp8 < 75,
    )


def batch_one() -> Claim:
    """No gain at batch 1."""
    loads = (1, 16, 64, 256)
    found = {load: speedup(f"workload.arrivals.concurrency={load}") for load in loads}
    cells = [[f"{load}", with_band(one)] for load, one in found.items()]
    return Claim(
        "There is no gain at batch 1.",
        "wrong",
        "",
        "It is where the gain is largest: the weights have to be read anyway, and more rows cost "
        f"little. α = {ALPHA}, K = 3:\n\n{table(['clients', '× plain'], cells)}",
        command("workload.arrivals.concurrency=1"),
        borne_out=found[1].value == max(one.value for one in found.values()) and band_of(found[1])[0] > 1.0,
    )


def short_outputs() -> Claim:
    """Under 50 output tokens it does not pay."""
    lengths, loads = (10, 25, 50, 100, 400), (1, 64)

    def changes(tokens: int, load: int) -> tuple[str, str]:
        fixed = f"workload.output_tokens={{kind: fixed, tokens: {tokens}}}"
        return fixed, f"workload.arrivals.concurrency={load}"

    found = {(tokens, load): speedup(*changes(tokens, load)) for tokens in lengths for load in loads}
    cells = [[f"{tokens}", *(with_band(found[tokens, load]) for load in loads)] for tokens in lengths]
    return Claim(
        "Under 50 output tokens it does not pay.",
        "holds where",
        "the GPUs are busy with prompts: there it neither pays nor loses",
        f"Prompts of 500 tokens, α = {ALPHA}, K = 3:\n\n"
        f"{table(['output tokens', '× plain, 1 client', '× plain, 64 clients'], cells)}\n\n"
        "Prompts cost both variants the same, the drafter reads them too, and the last round is cut at the "
        "end. "
        "With one client short outputs gain all the same.",
        command(*changes(25, 64)),
        borne_out=all(
            band_of(found[tokens, 64])[0] < 1.0 < band_of(found[tokens, 64])[1]
            and band_of(found[tokens, 1])[0] > 1.0
            for tokens in lengths
            if tokens <= 50
        ),
    )


_SMALL = (
    "target.weights=bf16",
    "target.kv_cache=bf16",
    "hardware.tensor_parallel=1",
    "speculation=[{name: ngram, method: ngram, draft_length: 3, acceptance: {model: geometric, alpha: "
    "0.5}}, {name: draft, method: draft_model, draft: smollm2-135m-instruct, draft_length: 3, "
    "acceptance: {model: geometric, alpha: 0.7}}]",
)


def tiny_targets() -> Claim:
    """Tiny targets do not gain."""
    rows: list[Sequence[str]] = []
    bands: dict[str, list[tuple[float, float]]] = {"ngram": [], "draft": []}
    for model in ("smollm2-135m-instruct", "smollm2-360m-instruct", "smollm2-1.7b-instruct"):
        for load in (1, 64):
            result = run(f"target.model={model}", f"workload.arrivals.concurrency={load}", *_SMALL)
            found = {name: one.ratios["throughput_speedup"] for name, one in result.comparison.items()}
            rows.append(
                [model.removesuffix("-instruct"), f"{load}", *(with_band(found[name]) for name in bands)]
            )
            for name, of in bands.items():
                of.append(band_of(found[name]))
    columns = [
        "target, one H100",
        "clients",
        "look-up, α 0.5, × plain",
        "draft model of 135M, α 0.7, × plain",
    ]
    return Claim(
        "Tiny targets do not gain.",
        "holds where",
        "the drafter is a model nearly as slow as the target",
        f"{table(columns, rows)}\n\nA small model's step is launches and host time, and so is a pass of "
        "any "
        "drafter. What drafts without a pass gains at every size.",
        command("target.model=smollm2-1.7b-instruct", *_SMALL),
        borne_out=min(low for low, _ in bands["ngram"]) > 1.0
        and max(high for _, high in bands["draft"][:4]) < 1.0,
    )


def simulated_claims() -> list[Claim]:
    """All of them, in the page's order."""
    return [
        tokens_per_round(),
        three_per_cent(),
        high_concurrency(),
        second_pass(),
        bytes_of_70b(),
        batch_one(),
        tiny_targets(),
        short_outputs(),
    ]

"""Rules of thumb that are tested by closed forms and simulation, for Llama-3.3-70B with EAGLE-3 on H100s."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from calibration.acceptance.claims.claim import Claim, band_of, required, table, with_band
from simulator.breakeven.theory import acceptance_rate, tokens_per_verify
from simulator.models.catalogue import load_model
from simulator.results.estimate import Estimate
from simulator.results.summary import STEP_BAND

if TYPE_CHECKING:
    from simulator.breakeven.answer import BreakEvenRow
    from simulator.results.result import Result

SCENARIO = "examples/textbook-h100.yaml"
_PATH = Path(__file__).resolve().parents[3] / SCENARIO
_FEWER_REQUESTS = ("workload.requests=400", "run.replications=3")
ALPHA = 0.7
"""The acceptance in the scenario."""


def run(*changes: str) -> Result:
    """Simulate the scenario with these changes and fewer requests than it states."""
    from simulator.scenario import load_scenario
    from simulator.simulation import simulate

    return simulate(load_scenario(_PATH, [*_FEWER_REQUESTS, *changes]), keep_requests=False)


def speedup(*changes: str) -> Estimate:
    """Throughput with speculation ÷ throughput without."""
    return required(run(*changes).comparison["eagle3"].ratios["throughput_speedup"])


def command(*changes: str, name: str = "simulate") -> str:
    """The command line of a run with these changes."""
    return " ".join([f"decodesim {name} {SCENARIO}", *(f"--set '{change}'" for change in changes)])


@cache
def needed(concurrency: int, draft_length: int) -> BreakEvenRow:
    """The break-even acceptance of the scenario at a load and a draft length."""
    from simulator.breakeven.breakeven import breakeven
    from simulator.scenario import load_scenario

    scenario = load_scenario(_PATH, ["workload.requests=800"])
    return breakeven(scenario, [{"concurrency": concurrency}], [draft_length]).rows[0]


def tokens_per_round() -> Claim:
    """E = 1 + Kα."""
    lengths = (1, 3, 5, 7)
    rows = [[f"{k}", f"{1 + k * ALPHA:.2f}", f"{tokens_per_verify(ALPHA, k):.2f}"] for k in lengths]
    simulated = required(run().variants["eagle3"]["mean_acceptance_length"])
    rates = ", ".join(f"{acceptance_rate(ALPHA, k):.2f}" for k in lengths)
    return Claim(
        "A round emits E = 1 + Kα tokens.",
        "holds where",
        "α is accepted ÷ drafted at the same K; with acceptance per token it is wrong beyond K = 1",
        "A draft counts only if all earlier drafts were accepted, so no K yields more than 1 ÷ (1 − α) "
        f"tokens. At α = {ALPHA}:\n\n{table(['K', '1 + Kα', '(1 − α^(K+1)) ÷ (1 − α)'], rows)}\n\nThe "
        f"simulation of K = 3 gives {with_band(simulated)}. With α = accepted ÷ drafted the formula is an "
        f"identity, but this α falls with K: {rates} in the rows above.",
        command(),
        borne_out=abs(simulated.value / tokens_per_verify(ALPHA, 3) - 1.0) < 0.02,
    )


def three_per_cent() -> Claim:
    """Break-even = overhead / K ≈ 0.03."""
    loads, length = (1, 64, 256), 3
    overheads = {load: required(needed(load, length).overhead) for load in loads}
    # The band of a round's time is 10 % to either side, as everywhere.
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
        "it is a share of accepted ÷ drafted; the number may be right for a single client, and is wrong "
        "under load",
        f"K = {length}:\n\n{table(columns, cells)}\n\n0.03 would need a round that costs only 9 % more than "
        "a plain step. Besides, accepted ÷ drafted is not α: the same break-even is a larger number in "
        "acceptance per token.",
        f"decodesim breakeven {SCENARIO} --concurrency 1,64,256 --draft-length 3",
        borne_out=linear[1][0] < 0.03 < linear[1][1] and min(linear[64][0], linear[256][0]) > 0.03,
    )


def high_concurrency() -> Claim:
    """Below α 0.55 it loses at high concurrency."""
    loads, lengths, claimed = (16, 64, 128, 256), (1, 3), 0.55
    alphas = {(load, k): needed(load, k).simulated_alpha for k in lengths for load in loads}
    cells = [[f"{load}", *(with_band(alphas[load, k]) for k in lengths)] for load in loads]
    bands = {case: band_of(estimate) for case, estimate in alphas.items()}
    settings = [
        f"{load} clients and K = {k}" for (load, k), (low, high) in bands.items() if low < claimed < high
    ]
    return Claim(
        "Below α = 0.55 speculation loses at high concurrency.",
        "holds where",
        f"the load matches: {', '.join(settings)}; other loads have other thresholds",
        f"{table(['clients', *(f'needed α, K = {k}' for k in lengths)], cells)}\n\nThere is no single "
        "threshold: it depends on batch, K and context. At 64 clients a smaller α is enough; at 256 clients "
        "with K = 3, 0.55 is not enough.",
        f"decodesim breakeven {SCENARIO} --concurrency 16,64,128,256 --draft-length 1,3",
        borne_out=bool(settings) and max(bands[64, k][1] for k in lengths) < claimed < bands[256, 3][0],
    )


def second_pass() -> Claim:
    """A rejected draft costs a second pass."""
    change = "speculation.eagle3.acceptance.alpha=0"
    result = run(change)
    length = required(result.variants["eagle3"]["mean_acceptance_length"])
    ratio = required(result.comparison["eagle3"].ratios["throughput_speedup"])
    overhead = required(needed(64, 3).overhead)
    return Claim(
        "A rejected draft costs a second pass of the target.",
        "wrong",
        "",
        "The pass that rejects a draft also yields the target's distribution at that position. The token "
        "that replaces the draft is drawn from the rest of this distribution, or is its argmax. So a round "
        f"emits one token even if every draft is rejected. The simulation gives {with_band(length)} tokens a "
        f"round and {with_band(ratio)} × plain at 64 clients, where the overhead of a round of "
        f"{overhead:.0%} predicts {1 / (1 + overhead):.2f}; with a second pass it would be "
        f"{1 / (2 + overhead):.2f}. The decode loop on real models calls the target once a round, which a "
        "test checks.",
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
        f"FP8 weights take {fp8:.0f} GB; {bf16:.0f} GB is their size in BF16. They are read once a step: "
        f"shared by 64 requests, that is {fp8 / 64:.1f} GB a token, and less if a round emits several "
        "tokens.",
        command(name="memory"),
        borne_out=65 < fp8 < 75,
    )


def batch_one() -> Claim:
    """No gain at batch 1."""
    loads = (1, 16, 64, 256)
    speedups = {load: speedup(f"workload.arrivals.concurrency={load}") for load in loads}
    cells = [[f"{load}", with_band(estimate)] for load, estimate in speedups.items()]
    return Claim(
        "There is no gain at batch 1.",
        "wrong",
        "",
        "The gain is largest there: the weights have to be read anyway, and more rows cost little. "
        f"α = {ALPHA}, K = 3:\n\n{table(['clients', '× plain'], cells)}",
        command("workload.arrivals.concurrency=1"),
        borne_out=speedups[1].value == max(estimate.value for estimate in speedups.values())
        and band_of(speedups[1])[0] > 1.0,
    )


def tokens_per_second_of_70b() -> Claim:
    """A 70B model decodes at 40 to 80 tokens a second on H100s."""
    settings = (("bf16", 2), ("bf16", 4), ("fp8", 1), ("fp8", 2), ("fp8", 4), ("fp8", 8))
    rates = {}
    for weights, ways in settings:
        variants = run(
            "speculation=[]",
            f"target.weights={weights}",
            f"hardware.tensor_parallel={ways}",
            "workload.arrivals.concurrency=1",
        ).variants
        rates[weights, ways] = 1.0 / required(variants["plain"]["tpot_s.mean"]).value
    rows = [[f"{ways} × H100, {weights}", f"{rate:.0f}"] for (weights, ways), rate in rates.items()]
    columns = ["Llama-3.3-70B on", "tokens/s, one client"]
    return Claim(
        "A 70B model decodes 40–80 tokens a second on H100s.",
        "holds where",
        "one client is served by four GPUs in BF16 or by two in FP8; fewer GPUs are slower, more are faster",
        f"{table(columns, rows)}\n\nA request's rate is 1 ÷ TPOT. All requests together decode faster: "
        "their rates add up.",
        command("speculation=[]", "hardware.tensor_parallel=2", "workload.arrivals.concurrency=1"),
        borne_out={case for case, rate in rates.items() if 40 < rate < 80} == {("bf16", 4), ("fp8", 2)},
    )


def four_times_at_five() -> Claim:
    """4.1× at K = 5."""
    from simulator.breakeven.breakeven import breakeven
    from simulator.scenario import load_scenario

    claimed, length, loads = 4.1, 5, (1, 16, 64)
    scenario = load_scenario(_PATH, ["workload.requests=800"])
    answers = breakeven(scenario, [{"concurrency": load} for load in loads], [length], [claimed]).rows
    rows = [
        [
            f"{load}",
            "–" if answer.overhead is None else f"{answer.overhead:.0%}",
            "–" if answer.overhead is None else f"{claimed * (1 + answer.overhead):.2f}",
            with_band(answer.simulated_alpha) if answer.simulated_alpha else "out of reach",
        ]
        for load, answer in zip(loads, answers, strict=True)
    ]
    columns = ["clients", "overhead of a round", f"tokens a round for {claimed}×", "needed α"]
    single = answers[0].simulated_alpha
    return Claim(
        "4.1× at K = 5.",
        "holds where",
        "a single client is served and more than nine drafts in ten are accepted",
        f"{table(columns, rows)}\n\nA round of K = 5 yields 6 tokens at most, so 4.1× leaves 46 % for all "
        "drafting and verifying, even if every draft is accepted.",
        f"decodesim breakeven {SCENARIO} --concurrency 1,16,64 --draft-length 5 --target-speedup 4.1",
        borne_out=single is not None and single.value > 0.9 and answers[-1].simulated_alpha is None,
    )


def short_outputs() -> Claim:
    """Under 50 output tokens it does not pay."""
    lengths, loads = (10, 25, 50, 100, 400), (1, 64)

    def changes(tokens: int, load: int) -> tuple[str, str]:
        spread = f"{{kind: uniform, low: {tokens // 2}, high: {tokens * 3 // 2}}}"
        return f"workload.output_tokens={spread}", f"workload.arrivals.concurrency={load}"

    speedups = {(tokens, load): speedup(*changes(tokens, load)) for tokens in lengths for load in loads}
    cells = [[f"{tokens}", *(with_band(speedups[tokens, load]) for load in loads)] for tokens in lengths]
    return Claim(
        "Under 50 output tokens it does not pay.",
        "wrong",
        "",
        f"Prompts of 500 tokens, outputs uniform within ± 50 %, α = {ALPHA}, K = "
        f"3:\n\n{table(['mean output tokens', '× plain, 1 client', '× plain, 64 clients'], cells)}\n\n"
        "Short outputs gain less, because prompts cost both variants the same, the drafter reads them as "
        "well, and the last round is cut at the end of the output. With outputs of one length, all clients "
        "of a closed loop stay in step, and 64 of them gain nothing below 50 tokens: an artefact.",
        command(*changes(25, 64)),
        borne_out=all(band_of(speedups[tokens, load])[0] > 1.0 for tokens in (25, 50) for load in loads)
        and speedups[10, 64].value > 0.97,
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
            speedups = {
                name: variant.ratios["throughput_speedup"] for name, variant in result.comparison.items()
            }
            rows.append(
                [model.removesuffix("-instruct"), f"{load}", *(with_band(speedups[name]) for name in bands)]
            )
            for name, model_bands in bands.items():
                model_bands.append(band_of(speedups[name]))
    columns = [
        "target, one H100",
        "clients",
        "prompt lookup, α 0.5, × plain",
        "draft model of 135M, α 0.7, × plain",
    ]
    return Claim(
        "Tiny targets do not gain.",
        "holds where",
        "the drafter is a model nearly as slow as the target",
        f"{table(columns, rows)}\n\nA small model's step consists of launches and host time, and so does a "
        "pass of any drafter. A method that drafts without a pass gains at every size.",
        command("target.model=smollm2-1.7b-instruct", *_SMALL),
        borne_out=min(low for low, _ in bands["ngram"]) > 1.0
        and max(high for _, high in bands["draft"][:4]) < 1.0,
    )


def simulated_claims() -> list[Claim]:
    """All simulated claims, in the order of the page."""
    return [
        tokens_per_round(),
        three_per_cent(),
        high_concurrency(),
        second_pass(),
        bytes_of_70b(),
        batch_one(),
        tokens_per_second_of_70b(),
        four_times_at_five(),
        tiny_targets(),
        short_outputs(),
    ]

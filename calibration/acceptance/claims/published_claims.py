"""Rules of thumb that are tested on published acceptance: by domain, and by generation of EAGLE."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from calibration.acceptance.claims.claim import Claim, band_of, table, with_band
from calibration.acceptance.claims.simulated_claims import command, speedup
from calibration.validation.reconstruction.acceptance_facts import facts_of
from calibration.validation.reconstruction.cases import committed_cases
from calibration.validation.reconstruction.drafts import method_of
from simulator.breakeven.theory import alpha_from_tokens_per_verify

_BY_CATEGORY = "vllm-blog:eagle-3.1+amd"
"""The source that states one drafter's acceptance by category of prompt."""
_CREATIVE = ("writing", "roleplay")


class PublishedChain(NamedTuple):
    """A chain's published acceptance. `alpha`: per token, assuming that it is equal for all drafts."""

    source: str
    model: str
    method: str
    datasets: tuple[str, ...]
    length: float
    alpha: float


def chains() -> Iterator[PublishedChain]:
    """All published mean acceptance lengths of chains whose K is known."""
    for case in committed_cases():
        for fact in facts_of(case):
            if fact.tree or not fact.length_is_stated:
                continue
            alpha = alpha_from_tokens_per_verify(fact.length, fact.draft_length)
            method = method_of(case, case.points[fact.point])
            if alpha is not None and method is not None:
                yield PublishedChain(fact.source_id, fact.model, method, fact.dataset, fact.length, alpha)


def code_and_creative() -> Claim:
    """3–5× on code, none in creative writing."""
    by_category = {
        chain.datasets[0]: chain
        for chain in chains()
        if chain.source == _BY_CATEGORY and len(chain.datasets) == 1
    }
    names = ("coding", *_CREATIVE)
    cases = ((1, 3), (1, 5), (1, 7), (64, 3), (256, 3))

    def changes(name: str, load: int, draft_length: int) -> tuple[str, ...]:
        return (
            f"speculation.eagle3.acceptance.alpha={by_category[name].alpha:.2f}",
            f"speculation.eagle3.draft_length={draft_length}",
            f"workload.arrivals.concurrency={load}",
        )

    gains = {(name, case): speedup(*changes(name, *case)) for name in names for case in cases}
    cells = [
        [
            name,
            f"{by_category[name].length:.2f}",
            f"{by_category[name].alpha:.2f}",
            *(with_band(gains[name, case]) for case in cases),
        ]
        for name in names
    ]
    columns = ["prompts", "E published, K = 3", "α", *(f"× plain at {load}, K = {k}" for load, k in cases)]
    bands = {key: band_of(gain) for key, gain in gains.items()}
    return Claim(
        "3–5× on code, nothing in creative writing.",
        "holds where",
        "code is decoded for a single client with K ≥ 5, provided that later drafts are accepted as often "
        "as the first three; creative writing gains there, too",
        f"The table uses the acceptance of one EAGLE-3 drafter by category ({by_category['coding'].model}, "
        f"vLLM) in the scenario, for 1, 64 and 256 clients:\n\n{table(columns, cells)}\n\nThe source "
        "measured K = 3; its α is also used for K = 5 and 7. At 64 clients all three categories gain; at "
        "256 clients creative writing loses.",
        command(*changes("coding", 1, 5)),
        borne_out=min(bands["coding", case][0] for case in ((1, 5), (1, 7))) > 3.0
        and all(bands[name, (1, 3)][0] > 1.0 and bands[name, (256, 3)][1] < 1.0 for name in _CREATIVE)
        and all(bands[name, (64, 3)][0] > 1.0 for name in names),
    )


_GENERATIONS = {"EAGLE": ("eagle", "eagle1"), "EAGLE-3": ("eagle3", "eagle_3")}


def eagle_generations() -> Claim:
    """The α ranges quoted per EAGLE generation."""
    all_chains = list(chains())
    cells, spans = [], []
    for name, methods in _GENERATIONS.items():
        generation = [chain for chain in all_chains if chain.method in methods]
        alphas = sorted(chain.alpha for chain in generation)
        percentiles = [alphas[round(share * (len(alphas) - 1))] for share in (0.1, 0.5, 0.9)]
        spans.append(percentiles[2] - percentiles[0])
        cells.append(
            [
                name,
                f"{len(generation)} of {len({chain.source for chain in generation})} sources, "
                f"{len({chain.model for chain in generation})} models",
                f"{percentiles[1]:.2f}",
                f"{percentiles[0]:.2f} to {percentiles[2]:.2f}",
                f"{alphas[0]:.2f} to {alphas[-1]:.2f}",
            ]
        )
    columns = ["drafter", "published chains", "median α", "80 % of them", "all"]
    return Claim(
        "Each generation of EAGLE has its α: 0.6–0.7, then 0.7–0.8, then 0.8–0.9.",
        "wrong",
        "",
        "α is computed from the published mean acceptance length of chains, assuming equal acceptance at "
        f"all positions:\n\n{table(columns, cells)}\n\nThe target and the prompts change α more than the "
        "generation does: one recipe spans most of the scale. EAGLE-2 changes the tree, not the head, so it "
        "has no α of its own.",
        "python -m calibration.acceptance.claims",
        borne_out=spans[1] > 0.2,
    )


def published_claims() -> list[Claim]:
    """All published claims, in the order of the page."""
    return [code_and_creative(), eagle_generations()]

"""Rules of thumb that are tested on published acceptance: by domain, by drafter, by generation of EAGLE."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median
from typing import NamedTuple

from calibration.acceptance.claims.claim import Claim, band_of, table, with_band
from calibration.acceptance.claims.simulated_claims import command, speedup
from calibration.validation.reconstruction.acceptance_facts import facts_of
from calibration.validation.reconstruction.cases import committed_cases
from calibration.validation.reconstruction.drafts import method_of
from simulator.breakeven.theory import alpha_from_tokens_per_verify, tokens_per_verify

_BY_CATEGORY = "vllm-blog:eagle-3.1+amd"
"""The source that states one drafter's acceptance by category of prompt."""
_CREATIVE = ("writing", "roleplay")


class PublishedChain(NamedTuple):
    """A chain's published acceptance. `length`: tokens per verify. `alpha`: per token, assuming that it is
    equal for all drafts.
    """

    source: str
    model: str
    method: str
    datasets: tuple[str, ...]
    draft_length: int
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
                yield PublishedChain(
                    fact.source_id, fact.model, method, fact.dataset, fact.draft_length, fact.length, alpha
                )


def chains_by_category() -> dict[str, PublishedChain]:
    """The chains of the source that states acceptance by category of prompt."""
    return {
        chain.datasets[0]: chain
        for chain in chains()
        if chain.source == _BY_CATEGORY and len(chain.datasets) == 1
    }


_CHAT = ("qa", "writing", "humanities", "reasoning")


def chat_and_code() -> Claim:
    """2–3× on chat, and where."""
    by_category = chains_by_category()
    alpha = median(by_category[name].alpha for name in _CHAT)
    loads, lengths = (1, 16, 64, 256), (3, 5)

    def changes(load: int, draft_length: int) -> tuple[str, ...]:
        return (
            f"speculation.eagle3.acceptance.alpha={alpha:.2f}",
            f"speculation.eagle3.draft_length={draft_length}",
            f"workload.arrivals.concurrency={load}",
        )

    gains = {(load, k): speedup(*changes(load, k)) for load in loads for k in lengths}
    rows = [[f"{load}", *(with_band(gains[load, k]) for k in lengths)] for load in loads]
    bands = {case: band_of(gain) for case, gain in gains.items()}
    return Claim(
        "2–3× on chat.",
        "holds where",
        "a single client, or a few, are served; under load the gain is smaller",
        f"α = {alpha:.2f}, the median of {', '.join(_CHAT)} of the same drafter:\n\n"
        f"{table(['clients', *(f'× plain, K = {k}' for k in lengths)], rows)}",
        command(*changes(1, 5)),
        borne_out=bands[1, 5][1] > 2.0 and bands[1, 5][0] < 3.0 and bands[64, 3][1] < 2.0,
    )


def code_and_creative() -> Claim:
    """3–5× on code, none in creative writing."""
    by_category = chains_by_category()
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
_DRAFT_MODELS = ("draft_model", "sps")
_RERUN = "python -m calibration.acceptance.claims"


def spread(chains_of_kind: Sequence[PublishedChain]) -> tuple[float, float, float]:
    """α that 10 %, 50 % and 90 % of the chains do not exceed."""
    alphas = sorted(chain.alpha for chain in chains_of_kind)
    low, middle, high = (alphas[round(share * (len(alphas) - 1))] for share in (0.1, 0.5, 0.9))
    return low, middle, high


def spread_row(name: str, chains_of_kind: Sequence[PublishedChain]) -> list[str]:
    """The row of a kind of drafter: how many chains, their median α, and how far it varies."""
    low, middle, high = spread(chains_of_kind)
    alphas = [chain.alpha for chain in chains_of_kind]
    sources, models = ({getattr(chain, key) for chain in chains_of_kind} for key in ("source", "model"))
    return [
        name,
        f"{len(alphas)} of {counted(len(sources), 'source')}, {counted(len(models), 'model')}",
        f"{middle:.2f}",
        f"{low:.2f} to {high:.2f}",
        f"{min(alphas):.2f} to {max(alphas):.2f}",
    ]


def counted(count: int, noun: str) -> str:
    """`1 source`, `2 sources`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


_SPREAD_COLUMNS = ["drafter", "published chains", "median α", "80 % of them", "all"]


def eagle_generations() -> Claim:
    """The α ranges quoted per EAGLE generation."""
    all_chains = list(chains())
    generations = {
        name: [chain for chain in all_chains if chain.method in methods]
        for name, methods in _GENERATIONS.items()
    }
    rows = [spread_row(name, generation) for name, generation in generations.items()]
    low, _, high = spread(generations["EAGLE-3"])
    return Claim(
        "Each generation of EAGLE has its α: 0.3–0.5 for a draft model, then 0.5–0.6, 0.6–0.7, 0.7–0.8.",
        "wrong",
        "",
        "α is computed from the published mean acceptance length of chains, assuming equal acceptance at "
        f"all positions:\n\n{table(_SPREAD_COLUMNS, rows)}\n\nThe target and the prompts change α more "
        "than the generation does: one recipe spans most of the scale. EAGLE-2 changes the tree, not the "
        "head, so it has no α of its own. Ranges a tenth higher are quoted, too; they fit no better.",
        _RERUN,
        borne_out=high - low > 0.2 and low < 0.7 and high > 0.8,
    )


def classic_drafts() -> Claim:
    """A small draft model is accepted 30 to 50 % of the time."""
    drafts = [chain for chain in chains() if chain.method in _DRAFT_MODELS]
    by_pair: dict[tuple[str, str], list[PublishedChain]] = {}
    for chain in drafts:
        by_pair.setdefault((chain.source, chain.model), []).append(chain)
    rows = [spread_row("all draft models", drafts)]
    rows += [spread_row(f"{model} ({source})", pair) for (source, model), pair in sorted(by_pair.items())]
    low, _, _ = spread(drafts)
    return Claim(
        "A small draft model has α = 0.3–0.5.",
        "wrong",
        "",
        "Published chains of separate draft models, by target and source:\n\n"
        f"{table(_SPREAD_COLUMNS, rows)}\n\nDraft models of the same family are accepted as often as "
        "EAGLE heads. What makes them slow is their cost. The range may stem from accepted ÷ drafted "
        "tokens, which is below α and falls with K.",
        _RERUN,
        borne_out=low > 0.5,
    )


_EAGLE3_LENGTH = 4.5


def eagle3_length() -> Claim:
    """EAGLE-3 is accepted at α = 0.82 and yields 4.5 tokens a round."""
    eagle3 = [chain for chain in chains() if chain.method in _GENERATIONS["EAGLE-3"]]
    lengths = sorted({chain.draft_length for chain in eagle3})
    rows, reached = [], {}
    for length in lengths:
        same_length = [chain for chain in eagle3 if chain.draft_length == length]
        reached[length] = sum(chain.length >= _EAGLE3_LENGTH for chain in same_length)
        rows.append(
            [
                f"{length}",
                f"{tokens_per_verify(0.82, length):.2f}",
                f"{len(same_length)}",
                f"{median(chain.alpha for chain in same_length):.2f}",
                f"{median(chain.length for chain in same_length):.2f}",
                f"{reached[length]}",
            ]
        )
    columns = ["K", "E at α = 0.82", "published chains", "median α", "median E", f"E ≥ {_EAGLE3_LENGTH}"]
    return Claim(
        "EAGLE-3 has α = 0.82 and yields 4.5 tokens a round.",
        "holds where",
        "K is 7 or more and the prompts suit the head; at the K = 3 of most servers a chain cannot yield "
        "more than 4",
        f"{table(columns, rows)}\n\nThe two figures belong together only at K = 7: at α = 0.82, a shorter "
        "chain yields less than 4.5 tokens.",
        _RERUN,
        borne_out=tokens_per_verify(0.82, 6) < _EAGLE3_LENGTH < tokens_per_verify(0.82, 8)
        and sum(reached.values()) < len(eagle3) / 4,
    )


_NO_DOMAIN = ("average", "any")


def alpha_by_domain() -> Claim:
    """Code is accepted most often, creative writing least."""
    by_category = chains_by_category()
    ordered = sorted(
        (item for item in by_category.items() if item[0] not in _NO_DOMAIN and "input" not in item[0]),
        key=lambda item: -item[1].alpha,
    )
    rows = [[name, f"{chain.length:.2f}", f"{chain.alpha:.2f}"] for name, chain in ordered]
    names = [name for name, _ in ordered]
    return Claim(
        "α depends on the domain: highest on code, lowest in creative writing.",
        "holds",
        "",
        f"One EAGLE-3 drafter by category of prompt ({ordered[0][1].model}, vLLM, K = "
        f"{ordered[0][1].draft_length}):\n\n{table(['prompts', 'E published', 'α'], rows)}\n\nMeasure α "
        "on your own mix of prompts: a mean over other prompts says little about it.",
        "decodesim accept --target builtin --draft layer-skip",
        borne_out=names[0] == "coding" and set(names[-2:]) == set(_CREATIVE),
    )


def published_claims() -> list[Claim]:
    """All published claims, in the order of the page."""
    return [
        chat_and_code(),
        code_and_creative(),
        alpha_by_domain(),
        eagle_generations(),
        eagle3_length(),
        classic_drafts(),
    ]

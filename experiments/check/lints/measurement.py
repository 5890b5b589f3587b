"""What the answer rests on: acceptance, temperature, load, version."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from statistics import fmean

from experiments.check.lint import Hit
from experiments.check.lints import lint
from experiments.check.subject import Subject

WARM = 0.6
"""From this temperature on, greedy drafts lose much."""


@lint(
    "acceptance-assumed",
    "info",
    "No acceptance was measured",
    source="ai-dynamo/aiconfigurator#1560",
)
def acceptance_assumed(subject: Subject) -> Iterator[Hit]:
    variant = subject.variant
    if variant is not None and not subject.is_launch and "acceptance" not in variant.model_fields_set:
        text = "α 0.7 is assumed, and the verdict follows it"
        fix = "acceptance: {file: acceptance.json}, from decodesim read or accept"
        yield Hit(f"speculation.{variant.name}.acceptance", text, fix)


@lint(
    "greedy-drafts",
    "warning",
    "Greedy drafts at a temperature",
    source="vllm-project/vllm#16899, #35461, #20459; docs/measured-acceptance.md",
)
def greedy_drafts(subject: Subject) -> Iterator[Hit]:
    temperature = subject.data.get("workload", {}).get("temperature")
    if temperature is None or temperature < WARM or subject.scenario is None or subject.variant is None:
        return
    if subject.models is None or subject.models[1] is None or subject.variant.draft_sampling == "sampled":
        return
    measured, ratio = sampled_gain(temperature)
    text = (
        f"the target samples at {temperature:g}, the drafter does not. Measured at {measured:g} with "
        f"drafters of SmolLM2: sampled drafts have {ratio:.1f} × as many accepted tokens"
    )
    fix = 'draft_sampling: sampled; in vLLM from 0.27 on "draft_sample_method": "probabilistic"'
    yield Hit(f"speculation.{subject.variant.name}.draft_sampling", text, fix)


@cache
def sampled_gain(temperature: float) -> tuple[float, float]:
    """The measured temperature that is nearest, and there the accepted drafts of sampled ÷ greedy drafts.

    Over the drafters of `calibration/data/acceptance-smollm2.json` that were measured both ways.
    """
    from calibration.acceptance.committed_file import load

    accepted: dict[tuple[float, str, str, int], dict[str, float]] = {}
    for row in load()["rows"]:
        length = row["mean_acceptance_length"]
        if length is not None:
            key = (row["temperature"], row["draft"], row["domain"], row["draft_length"])
            accepted.setdefault(key, {})[row["draft_sampling"]] = length["value"] - 1
    both = {key: ways for key, ways in accepted.items() if ways.keys() == {"greedy", "sampled"}}
    nearest = min({key[0] for key in both}, key=lambda measured: abs(measured - temperature))
    ways = [both[key] for key in both if key[0] == nearest]
    return nearest, fmean(way["sampled"] for way in ways) / fmean(way["greedy"] for way in ways)


@lint(
    "quantised-target",
    "info",
    "A head on the hidden states of a target that was quantised afterwards",
    source="vllm-project/vllm-ascend#5974, vllm-project/vllm#9534",
)
def quantised_target(subject: Subject) -> Iterator[Hit]:
    if subject.models is None or subject.method not in ("eagle", "eagle3"):
        return
    target = subject.models[0]
    if target.weights == "int4":
        text = f"the head was trained on other hidden states than those of {target.name} in int4"
        fix = "measure the acceptance on this target: decodesim read its metrics"
        yield Hit(subject.place("--quantization", "target.weights"), text, fix)


@lint(
    "infinite-rate",
    "warning",
    "Latencies under an infinite request rate",
    source="snowflakedb/ArcticInference#47",
)
def infinite_rate(subject: Subject) -> Iterator[Hit]:
    workload = subject.data.get("workload", {})
    burst = workload.get("arrivals", {}).get("kind") == "burst"
    if burst and workload.get("requests", 0) > subject.max_num_seqs:
        text = "all requests arrive at once and wait for one another: every latency is waiting time"
        yield Hit(
            "workload.arrivals", text, "{kind: closed, concurrency: …} or {kind: poisson, rate_per_s: …}"
        )


@lint(
    "version-unknown",
    "info",
    "A version that is newer than those checked",
    source="docs/launch.md",
)
def version_unknown(subject: Subject) -> Iterator[Hit]:
    from calibration.launch.registry import ENGINES, is_known_version

    if not is_known_version(subject.engine, subject.version):
        newest = ENGINES[subject.engine].newest
        text = f"{subject.preset.engine} {subject.version} is checked as {newest}, the newest known"
        yield Hit("engine.preset", text, f"compare with the release notes after {newest}")


@lint(
    "no-scenario",
    "info",
    "A launch that cannot be simulated",
    source="docs/launch.md",
)
def no_scenario(subject: Subject) -> Iterator[Hit]:
    if subject.problem is not None:
        text = f"only the options were checked: {subject.problem}"
        yield Hit(None, text, "the path of the model's config.json as the model")

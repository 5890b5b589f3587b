"""What other simulators claim about their own accuracy, in their own words, with sources.

All claims are about plain serving: none publishes errors for speculative decoding. This project has not rerun
them. Each simulator chose its own runs, most of them on the machine that it was profiled on.
"""

from __future__ import annotations

from typing import NamedTuple


class SimulatorClaim(NamedTuple):
    """One published claim."""

    simulator: str
    claim: str
    source: str


CLAIMS = (
    SimulatorClaim(
        "Vidur (2024)",
        "latency within 9 % of the engine that it emulates, over models and workloads",
        "https://arxiv.org/abs/2405.05465",
    ),
    SimulatorClaim(
        "LLMServingSim (2024)",
        "error below 14.7 % against a real GPU system",
        "https://arxiv.org/abs/2408.05499",
    ),
    SimulatorClaim(
        "LLMServingSim 2.0 (2025)",
        "1.9 % error for GPU-based serving, on hardware that was profiled",
        "https://arxiv.org/abs/2511.07229",
    ),
    SimulatorClaim(
        "LLM-Emu (2026)",
        "TPOT and ITL within 4.8 %, end to end within 5.3 %, TTFT within 10.4 %: vLLM itself, its forward "
        "pass replaced by sampled times",
        "https://github.com/AKafakA/llm-emu",
    ),
    SimulatorClaim(
        "BLIS (2026)",
        "median 7 to 9 % for end-to-end time and ITL over 36 runs of 8B to 141B models; in its own "
        "comparison of five simulators over 38 runs 11.8 % end to end and 22.8 % TTFT (mean absolute)",
        "https://github.com/inference-sim/inference-sim/pull/944",
    ),
    SimulatorClaim(
        "AIConfigurator (2026)",
        "ranks configurations from kernel tables (those that this project's profiles rest on too); "
        "in BLIS's comparison it covers 19 of 38 runs",
        "https://arxiv.org/abs/2601.06288",
    ),
)

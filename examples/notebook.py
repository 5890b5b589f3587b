# %% [markdown]
# # Does speculation pay, and what does the answer hang on?
#
# Llama-3.1-8B on one H100 with an EAGLE-3 head. Cells (`# %%`) run in VS Code, in Jupyter (jupytext) or as
# a script, `python examples/notebook.py`; all of it takes some seconds.

# %%
import tempfile
from pathlib import Path

import decodesim

scenario = decodesim.load(
    {
        "target": {"model": "llama-3.1-8b-instruct"},
        "hardware": {"gpu": "h100-sxm"},
        "speculation": [
            {"name": "eagle3", "method": "eagle3", "acceptance": {"model": "geometric", "alpha": 0.7}}
        ],
        "workload": {
            "arrivals": {"kind": "closed", "concurrency": 16},
            "requests": 400,
            "prompt_tokens": {"kind": "lognormal", "median": 400, "p95": 1500},
            "output_tokens": {"kind": "lognormal", "median": 80, "p95": 250},
        },
    }
)

# %% [markdown]
# ## Plain and speculative decoding on the same traffic and luck

# %%
result = decodesim.simulate(scenario, precision="2%")
print(result.comparison["eagle3"].verdict.sentence)
variants = decodesim.columns(result)
for name, throughput, tpot in zip(
    variants["arm"], variants["throughput_tokens_per_s"], variants["tpot_s.mean"], strict=True
):
    print(f"{name:8}  {throughput:8,.0f} tokens/s  TPOT {tpot * 1e3:.1f} ms")

# %% [markdown]
# Every request, as arrays: `pandas.DataFrame(requests)` makes a frame of them.

# %%
requests = decodesim.requests(result, "eagle3")
measured = requests["measured"] == 1
longest_s = requests["ttft_s"][measured].max()
print(f"{measured.sum():,} measured requests; the slowest waited {longest_s:.2f} s for its first token")

# %% [markdown]
# ## The acceptance that is needed, and the memory that is taken

# %%
needed = decodesim.columns(decodesim.break_even(scenario, concurrency=[1, 16, 64]))
for clients, alpha in zip(needed["concurrency"], needed["simulated_alpha"], strict=True):
    print(f"at {clients:.0f}: α {alpha:.2f}")
memory = decodesim.memory(scenario)
print(f"KV tokens: {memory.variants[0].kv_tokens:,} plain, {memory.variants[1].kv_tokens:,} with the drafter")

# %% [markdown]
# ## What if

# %%
answer = decodesim.what_if(
    scenario,
    "hardware.gpu=h200-sxm",
    "speculation.eagle3.acceptance.alpha=0.8",
    ["engine.host.step_s=0.0001", "engine.host.draft_pass_s=0.00005"],
)
for outcome in answer.outcomes:
    change = outcome.variants["eagle3"].figures["throughput_tokens_per_s"].ratio
    print(f"{outcome.alternative.name:45}  × {change.value:.3f} ± {change.half_width:.3f}")

# %% [markdown]
# ## Which uncertain inputs decide

# %%
bars = decodesim.tornado(scenario, ranges={"workload.arrivals.concurrency": (8, 32)})
for bar in bars.bars[:4]:
    print(f"{bar.input.name:30}  {bar.at_low.value:.2f} to {bar.at_high.value:.2f}")
spread = decodesim.sobol(scenario, samples=8)
low, high = spread.quantiles["p5"], spread.quantiles["p95"]
print(f"all together: {low:.2f} to {high:.2f}; measure first: {spread.indices[0].input.name}")

# %% [markdown]
# ## A study: a grid of scenarios in a store
#
# `workers=0` stays in this process. A script that starts workers keeps its work under
# `if __name__ == "__main__":`.

# %%
folder = Path(tempfile.mkdtemp())
study = folder / "study.yaml"
study.write_text(
    """
name: Draft length by load
scenario:
  target: {model: llama-3.1-8b-instruct}
  hardware: {gpu: h100-sxm}
  speculation: [{name: eagle3, method: eagle3, acceptance: {model: geometric, alpha: 0.7}}]
  workload: {arrivals: {kind: closed, concurrency: 16}, requests: 200}
axes:
  workload.arrivals.concurrency: [1, 16, 64]
  speculation.eagle3.draft_length: [1, 3, 5]
measure: breakeven
keep: [break_even_alpha, break_even_verdict, speedup_at.0.7]
""",
    encoding="utf-8",
)
standing = decodesim.sweep(study, folder / "study.db", workers=0)
print(f"{standing.done} cells, {standing.failed} failed")
cells = decodesim.results(folder / "study.db", where="draft_length = 3")
print(cells["eagle3.break_even_alpha"].round(2))
surface = decodesim.columns(decodesim.break_even_map(folder / "study.db"))
print(f"speedup at α 0.7: up to {surface['speedup_at_0.7'].max():.2f}")

# %% [markdown]
# ## And on
#
# Replicas, cost and a verdict for a traffic within its SLO take a minute:
# `decodesim.plan(scenario, slo="ttft_p99=1s,tpot_p99=25ms", rate_per_s=30).decision.reason`. Published
# measurements, simulated and compared: `decodesim.validate().summary["speedup"]`. All calls: docs/library.md.

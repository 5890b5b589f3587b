"""Scenario texts that tests start from."""

from __future__ import annotations

MINIMAL = """\
target: {model: llama-3.3-70b-instruct}
hardware: {gpu: h100-sxm, tensor_parallel: 4}
workload:
  arrivals: {kind: closed, concurrency: 64}
"""

WITH_VARIANT = """\
target:
  model: llama-3.3-70b-instruct
hardware:
  gpu: h100-sxm
  tensor_parallel: 4
speculation:
  - name: eagle3-k3
    method: eagle3
    draft: eagle3-llama-3.3-70b
    draft_length: 3
    acceptance: {model: geometric, alpha: 0.7}
workload:
  arrivals: {kind: closed, concurrency: 64}
  classes:
    - name: code
      share: 0.3
      acceptance: {eagle3-k3: {model: geometric, alpha: 0.4}}
"""

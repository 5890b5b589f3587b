"""Mixed steps: decodes first, then prefill chunks within the rest of the token budget
(vLLM V1, TensorRT-LLM).
"""

from simulator.scheduling import Rule, register

MIXED = register(Rule(name="mixed", source="vLLM v1/core/sched/scheduler.py", mixes_prefill=True))

"""A scenario file of a small deployment, as `gate` and `compare` take it."""


def small_deployment(draft_length: int) -> str:
    """SmolLM2-1.7B on an H100 with a draft model, 8 clients, short requests."""
    return f"""\
target: {{model: smollm2-1.7b-instruct}}
hardware: {{gpu: h100-sxm}}
engine: {{max_num_seqs: 32}}
speculation:
  - {{name: small, method: draft_model, draft: smollm2-135m-instruct, draft_length: {draft_length}}}
workload:
  arrivals: {{kind: closed, concurrency: 8}}
  requests: 200
  prompt_tokens: {{kind: fixed, tokens: 100}}
  output_tokens: {{kind: fixed, tokens: 60}}
"""

"""The oracle's prices (`docs/step.md` §4): how long the stages of a step take, and in which graph mode."""

from collections import Counter
from math import floor

from tests.oracle_blocks import Record


def line(knots: list[int], values: list[float], x: float) -> float:
    """Piecewise linear through (knots, values); the first and the last interval go on outside."""
    i = max(i for i, knot in enumerate(knots[:-1]) if x > knot or i == 0)
    return values[i] + (x - knots[i]) / (knots[i + 1] - knots[i]) * (values[i + 1] - values[i])


class PricedSteps:
    """Durations from the tables of `prices`."""

    engine: Record
    prices: Record
    on: Record
    overlaps: bool

    def price(self, plan: Record) -> tuple[dict[str, int], str, int]:
        """ns of every stage, graph mode, padded tokens; contexts as they are when the step starts."""
        p, engine, entries = self.prices, self.engine, list(plan["entries"].values())
        decodes = [e for e in entries if e["decodes"]]
        chunks = [e for e in entries if not e["decodes"]] if self.on["prefill"] else []
        rows, tokens = len(decodes) + len(chunks), sum(e["n"] for e in decodes + chunks)
        queries = [e["n"] for e in decodes]
        logits = sum(queries) + sum(e["samples"] for e in chunks)
        length = "emitted_tokens" if self.on["context_growth"] else "half"
        context = sum(e["request"]["prompt_tokens"] + e["request"][length] - 1 + e["n"] for e in decodes)
        decoding = (len(decodes), context, -(-sum(queries) // max(1, len(decodes))))
        pairs = [(e["n"], e["start"] + e["n"] / 2) for e in chunks]
        mode, padded = self.graph(tokens, queries, bool(chunks))
        verify = p["target_tokens"][padded] + p["target_experts"][tokens] + p["target_head"][logits]
        verify += self.attention("attention", *decoding) + p[f"launch_{mode}_ns"]
        verify += sum(n * mean * p["prefill_pair_ns"] + n * p["prefill_token_ns"] for n, mean in pairs)
        verify += p["prefill_start_ns"] if pairs else 0.0
        verify += sum(n * min(mean, p["window_tokens"]) * p["prefill_window_pair_ns"] for n, mean in pairs)
        draft, launch = 0.0, p["draft_launch_ns"] + engine["host"]["draft_pass_ns"]
        k, reads = plan["K"] if plan["drafts"] else 0, engine["first_pass_rows"].split("+")
        runs = engine["serial_passes"] and (k > 0 or (engine["drafter_has_kv"] and plan["may_draft"]))
        passes = 1 + len(self.later_passes(k)) if runs else 0
        if passes > 0:
            first = {"tokens": tokens, "requests": rows, "drafts": k * rows}
            chosen = max(k, 1) * rows if "drafts" in reads else rows
            draft += self.draft_pass(sum(first[what] for what in reads), chosen, *decoding) + launch
            for n, m in pairs if "tokens" in reads else []:
                draft += n * m * p["draft_prefill_pair_ns"] + n * p["draft_prefill_token_ns"]
            draft += p["draft_prefill_start_ns"] if pairs and "tokens" in reads else 0.0
            after = context + sum(e["start"] + e["n"] for e in chunks)
            for width in self.later_passes(k):
                draft += self.draft_pass(width * rows, width * rows, rows, after, width) + launch
        exposed, hidden = self.host(plan)
        sampling = len(decodes) + sum(e["samples"] for e in chunks)
        accept = p["sample"][logits] + p["sample_sequence_ns"] * sampling
        if passes > 0:  # a graph-less drafter is launched by the host
            on_gpu = draft - passes * engine["host"]["draft_pass_ns"]
            ahead = floor(verify + 0.5) + floor(accept + 0.5) - hidden if self.overlaps else 0
            ahead = max(ahead - (floor(p["launching_eager_ns"] + 0.5) if mode == "eager" else 0), 0)
            waited = max(on_gpu, passes * p["draft_launching_ns"] - ahead)
            draft += waited - on_gpu + engine["host"]["draft_step_ns"]
        gpu = (verify, accept, draft) if tokens > 0 else (0, 0, 0)  # `prefill` off: no pass
        ns = dict(zip(("verify_ns", "accept_ns", "draft_ns"), (floor(x + 0.5) for x in gpu), strict=True))
        return {"host_ns": exposed, **ns, "hidden_ns": hidden}, mode, padded

    def later_passes(self, k: int) -> list[int]:
        """Rows of each request in every pass after the first, of a step that makes k drafts."""
        if self.engine["serial_passes"] == 1 or k == 0:
            return []
        if "parents" not in self.engine:
            return [1] * (k - 1)
        extended = Counter(self.depth_of(node) for node in set(self.engine["parents"][1:]))
        return [extended[depth] for depth in sorted(extended) if depth > 0]

    def depth_of(self, node: int) -> int:
        return 0 if node == 0 else 1 + self.depth_of(self.engine["parents"][node])

    def reach(self, k: int) -> int:
        """Positions at which k drafts can be accepted: whole levels of a tree, and all of a chain."""
        if "parents" not in self.engine:
            return k
        depths = [self.depth_of(node) for node in range(1, len(self.engine["parents"]))]
        return len(set(depths[:k]) - set(depths[k:]))

    def host(self, plan: Record) -> tuple[int, int]:
        host, count = self.engine["host"], len(plan["entries"])
        exposed = floor(host["step_ns"] + host["per_sequence_ns"] * count + 0.5)
        hidden = floor(host["hidden_step_ns"] + host["hidden_per_sequence_ns"] * count + 0.5)
        return (exposed, hidden) if self.overlaps else (exposed + hidden, 0)

    def draft_pass(self, n: int, requests: int, count: int, context: int, query: int) -> float:
        p, padded = self.prices, min(self.sizes(1, n), default=n)
        fixed: float = p["draft_tokens"][padded] + p["draft_experts"][n] + p["draft_head"][requests]
        return fixed + self.attention("draft_attention", count, context, query)

    def sizes(self, multiple: int, rows: int) -> list[int]:
        """Graph sizes that hold `rows`, rounded up to a multiple; `rows` itself when nothing is padded."""
        sizes = [-(-size // multiple) * multiple for size in self.engine["graph_sizes"]]
        fits = [size for size in sizes if rows <= size <= self.engine["graph_cap"]]
        return fits if self.on["graph_padding"] else [rows]

    def graph(self, tokens: int, queries: list[int], has_chunks: bool) -> tuple[str, int]:
        if tokens == 0:  # `prefill` off, and no decodes
            return "full", 0
        lengths, small = self.engine["draft_length_by_batch"], tokens <= self.engine["graph_cap"]
        captured = {k + 1 for k in (lengths[1:] if self.engine["graphs_of_every_length"] else [max(lengths)])}
        uniform = not has_chunks and len(set(queries)) <= 1 and captured.issuperset(queries)
        full = uniform and self.sizes(queries[0] if queries else 1, tokens)
        mode = "full" if full else "piecewise" if small or not self.on["graph_padding"] else "eager"
        return mode, min(full or self.sizes(1, tokens), default=tokens)

    def attention(self, name: str, count: int, context: int, query: int) -> float:
        """Bilinear in (sequences, mean context) within the table of `query` tokens each."""
        if count == 0:
            return 0.0
        by_batch = self.prices[name][min(query, len(self.prices[name])) - 1]
        column = [line(self.prices["context_knots"], values, context / count) for values in by_batch]
        return line(self.prices["batch_knots"], column, float(count))

"""The cost model: what one target pass, one drafter pass or one sampling stage takes, operator by operator.

T = Σ operators (tokens, batch, context) + all-reduce + lm head + sampler + host. No roofline over the whole
step: that makes verification look free below the ridge, and measurements contradict it.
`prices.compile_prices` evaluates the same functions over grids for the step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from simulator.costs.network import Matrix, RoutedExperts, network
from simulator.costs.ops.experts import experts_read
from simulator.costs.pass_cost import PassCost
from simulator.costs.pricing import NetworkPricing, pair_flops, window_of
from simulator.costs.profiles import Profile
from simulator.engines.preset import Preset
from simulator.models.drafter import DrafterModel
from simulator.models.matrices import weight_bytes_each
from simulator.models.model import Model

Explained = list[tuple[str, PassCost]]
_US = 1e-6


@dataclass(frozen=True)
class CostModel:
    """Prices passes of a target and its drafter on one GPU type, parallelism and serving engine."""

    target: Model
    drafter: DrafterModel | None
    profile: Profile
    tensor_parallel: int
    expert_parallel: int
    draft_tensor_parallel: int
    kv_cache: str
    preset: Preset
    sampling: str = ""
    """How the target's tokens are chosen, as `Profile.sampler` names it."""
    draft_sampling: str = ""
    attention_dp: int = 1
    """Groups of the GPUs that hold requests of their own."""

    @cached_property
    def target_pricing(self) -> NetworkPricing:
        ranks, groups = self.tensor_parallel, self.attention_dp
        target_network = network(self.target, ranks, self.expert_parallel, groups=groups)
        return NetworkPricing(target_network, self.profile, self.preset, self.kv_cache, self.sampling)

    @cached_property
    def draft_pricing(self) -> NetworkPricing | None:
        if self.drafter is None:
            return None
        ranks = max(self.draft_tensor_parallel, self.attention_dp)
        expert_parallel = min(self.expert_parallel, ranks)
        draft_network = network(
            self.drafter.model, ranks, expert_parallel, self.drafter.fc, self.attention_dp
        )
        return NetworkPricing(draft_network, self.profile, self.preset, self.kv_cache, self.draft_sampling)

    def target_pass(
        self,
        tokens: int,
        decode_sequences: int = 0,
        context_tokens_sum: float = 0,
        query_tokens: int = 1,
        prefill_chunks: Sequence[tuple[int, int]] = (),
        logit_rows: int = 0,
        mode: str = "full",
        real_tokens: int | None = None,
    ) -> PassCost:
        """Cost of one forward of the target.

        `tokens` as padded by the graph (`real_tokens` of them not padding: only those reach experts),
        `context_tokens_sum` of the decodes, each sequence once, `prefill_chunks` as (tokens,
        start), `mode` full, piecewise or eager.
        """
        args = (tokens, decode_sequences, context_tokens_sum, query_tokens, prefill_chunks, logit_rows)
        return total(self.explain_pass(*args, mode, real_tokens))

    def explain_pass(
        self,
        tokens: int,
        decode_sequences: int = 0,
        context_tokens_sum: float = 0,
        query_tokens: int = 1,
        prefill_chunks: Sequence[tuple[int, int]] = (),
        logit_rows: int = 0,
        mode: str = "full",
        real_tokens: int | None = None,
    ) -> Explained:
        """As `target_pass`, operator by operator: (name, cost)."""
        real = tokens if real_tokens is None else real_tokens
        mean = context_tokens_sum / decode_sequences if decode_sequences else 0.0
        ops = _explain(self.target_pricing, tokens, real, logit_rows)
        ops += _explain_attention(self.target_pricing, decode_sequences, mean, query_tokens)
        ops += _explain_prefill(self.target_pricing, prefill_chunks)
        ops.append(("launch", PassCost(launch_s=self.target_pricing.launch_us(mode) * _US)))
        if mode == "eager":
            launching_s = self.target_pricing.launching_us() * _US
            ops.append(("launching", PassCost(host_s=max(0.0, launching_s - total(ops).gpu_s))))
        sequences = (decode_sequences + len(prefill_chunks)) / self.attention_dp
        ops.append(("host", PassCost(host_s=self.preset.host.exposed_s(sequences))))
        return ops

    def draft_pass(
        self,
        tokens: int,
        decode_sequences: int = 0,
        context_tokens_sum: float = 0,
        query_tokens: int = 1,
        prefill_chunks: Sequence[tuple[int, int]] = (),
        logit_rows: int = 0,
        real_tokens: int | None = None,
    ) -> PassCost:
        """Cost of one forward of the drafter, with its exposed host time. Raises ValueError without one."""
        args = (tokens, decode_sequences, context_tokens_sum, query_tokens, prefill_chunks, logit_rows)
        return total(self.explain_draft_pass(*args, real_tokens))

    def explain_draft_pass(
        self,
        tokens: int,
        decode_sequences: int = 0,
        context_tokens_sum: float = 0,
        query_tokens: int = 1,
        prefill_chunks: Sequence[tuple[int, int]] = (),
        logit_rows: int = 0,
        real_tokens: int | None = None,
    ) -> Explained:
        """As `draft_pass`, operator by operator."""
        if self.draft_pricing is None:
            raise ValueError("this cost model has no drafter")
        real = tokens if real_tokens is None else real_tokens
        mean = context_tokens_sum / decode_sequences if decode_sequences else 0.0
        ops = _explain(self.draft_pricing, tokens, real, logit_rows)
        ops += _explain_attention(self.draft_pricing, decode_sequences, mean, query_tokens)
        ops += _explain_prefill(self.draft_pricing, prefill_chunks, windows=False)
        sampled_s = float(self.draft_pricing.draft_sample_us(logit_rows)) * _US
        if sampled_s:
            ops.append(("draft sampler", PassCost(memory_s=sampled_s)))
        ops.append(("launch", PassCost(launch_s=self.draft_launch_us * _US)))
        waiting_s = max(0.0, self.draft_launching_us * _US - total(ops).gpu_s)
        if waiting_s:
            ops.append(("launching", PassCost(host_s=waiting_s)))
        ops.append(("host", PassCost(host_s=self.preset.host.draft_pass_s)))
        return ops

    @property
    def draft_launching_us(self) -> float:
        """What the host takes to launch one drafter pass operation by operation; 0 where a graph holds it."""
        if self.drafter is None or self.draft_pricing is None:
            return 0.0
        held = self.preset.draft_graphs == "all" or self.drafter.kind != "draft_model"
        return 0.0 if held else self.draft_pricing.draft_launching_us()

    @property
    def draft_launch_us(self) -> float:
        """GPU idle before one drafter pass: the launch of its graph."""
        return self.preset.launch_kernel_s * 1e6 if self.draft_pricing else 0.0

    def sample(self, rows: int, sequences: int = 0) -> PassCost:
        """The accept stage on logit rows of so many sequences: rejection and sampler."""
        each_us = self.profile.sampler_sequence_us(self.sampling)
        p = self.target_pricing
        time_s = (float(p.sample_us(rows)) + each_us * sequences / self.attention_dp) * _US
        start = min(time_s, self.profile.sampler(self.sampling).start_us * _US)
        moved = 4.0 * float(p.own(rows)) * p.network.head_features
        return PassCost(memory_s=time_s - start, launch_s=start, moved_bytes=moved)


def total(ops: Explained) -> PassCost:
    """The sum of explained operators."""
    cost = PassCost()
    for _, part in ops:
        cost = cost + part
    return cost


def _explain(p: NetworkPricing, tokens: int, real_tokens: int, rows: int) -> Explained:
    """Linears, small kernels, all-reduces, experts, head."""
    own = int(p.own(tokens))
    ops = [(matrix.name, _matrix_cost(p, matrix, own)) for matrix in p.network.matrices]
    small_s = float(p.small_us(tokens)) * _US
    start_s = min(small_s, p.small_start_us() * _US)
    moved = own * p.network.traffic_bytes_per_token
    ops.append(
        ("norms and activations", PassCost(memory_s=small_s - start_s, launch_s=start_s, moved_bytes=moved))
    )
    preparation_s = float(p.preparation_us(tokens)) * _US
    if preparation_s:
        ops.append(("embedding, positions, mask", PassCost(memory_s=preparation_s)))
    if p.network.reduced:
        ops.append(("all-reduce", PassCost(communication_s=float(p.reduce_us(tokens)) * _US)))
    if p.network.groups > 1:
        ops.append(("exchange of tokens", PassCost(communication_s=float(p.exchange_us(tokens)) * _US)))
    ops += [("routed experts", _experts_cost(p, experts, real_tokens)) for experts in p.network.experts]
    ops.append(("lm_head", _matrix_cost(p, p.network.head, int(p.own(rows)))))
    if p.network.tensor_parallel > 1:
        ops.append(("gather logits", PassCost(communication_s=float(p.gather_us(rows)) * _US)))
    return ops


def _matrix_cost(p: NetworkPricing, matrix: Matrix, tokens: int) -> PassCost:
    if tokens <= 0:
        return PassCost()
    operator = p.gemm(matrix.weights)
    memory, compute, fixed = (float(x) for x in operator.form.parts_us(matrix.n, matrix.k, tokens))
    time_s = float(operator.time_us(matrix.n, matrix.k, tokens)) * _US * matrix.count
    moved = matrix.n * matrix.k * weight_bytes_each(matrix.weights) + tokens * (matrix.k + matrix.n) * 2.0
    flops = 2.0 * tokens * matrix.n * matrix.k
    smooth = float(operator.form.time_us(matrix.n, matrix.k, tokens)) - fixed
    split = _split(time_s, memory, compute, fixed, smooth, operator.form.smoothness)
    return PassCost(*split, moved_bytes=moved * matrix.count, flops=flops * matrix.count)


def _split(
    time_s: float, memory: float, compute: float, fixed: float, smooth: float, p: float
) -> tuple[float, float, float, float]:
    """(compute, memory, communication = 0, launch) seconds that add up to `time_s`.

    The start takes its share of the smooth form; the rest is divided as the smooth maximum weighs its two
    arguments, x^p / (x^p + y^p), which is the elasticity of the time to each.
    """
    launch_s = time_s * fixed / (fixed + smooth)
    high = max(memory, compute)
    m, c = (memory / high) ** p, (compute / high) ** p
    memory_s = (time_s - launch_s) * m / (m + c)
    return time_s - launch_s - memory_s, memory_s, 0.0, launch_s


def _experts_cost(p: NetworkPricing, experts: RoutedExperts, tokens: int) -> PassCost:
    if tokens <= 0:
        return PassCost()
    operator = p.profile.experts(experts.weights)
    form = operator.form
    shape = (experts.hidden, experts.intermediate, experts.per_token, experts.experts)
    args = (*shape, experts.expert_parallel, experts.matrices)
    time_s = float(operator.time_us(tokens, *args)) * _US * experts.count
    read = (
        float(experts_read(experts.experts, experts.per_token, tokens, form.skew)) / experts.expert_parallel
    )
    size = experts.matrices * experts.hidden * experts.intermediate
    moved = read * size * form.weight_bytes
    flops = 2.0 * size * tokens * experts.per_token / experts.expert_parallel
    memory = moved / (form.bandwidth_bytes_per_s * form.memory_efficiency) * 1e6
    compute = flops / (form.flops_per_s * form.compute_efficiency) * 1e6
    fixed = form.start_us + form.per_expert_us * read
    smooth = float(form.time_us(tokens, *args)) - fixed
    split = _split(time_s, memory, compute, fixed, max(smooth, 0.0), form.smoothness)
    return PassCost(*split, moved_bytes=moved * experts.count, flops=flops * experts.count)


def _explain_attention(p: NetworkPricing, batch: int, context: float, query_tokens: int) -> Explained:
    """Attention of the decodes: the start is launch,
    what a cache read explains is memory, the rest arithmetic.
    """
    if batch <= 0:
        return []
    batch = int(p.own(batch))
    ops: Explained = []
    for layers in p.network.attentions:
        time_us = float(p.layer_attention_us(layers, batch, context, query_tokens))
        plain_us = min(time_us, float(p.layer_attention_us(layers, batch, context, 1)))
        start_us = min(plain_us, float(p.layer_attention_us(layers, 1, 1, 1)))
        a = layers.attention
        seen = min(context, window_of(layers) or context)
        moved = batch * a.read_bytes(round(context), p.kv_cache, p.network.tensor_parallel)
        cost = PassCost(
            compute_s=(time_us - plain_us) * _US,
            memory_s=(plain_us - start_us) * _US,
            launch_s=start_us * _US,
            moved_bytes=float(moved),
            flops=batch * query_tokens * seen * pair_flops(layers),
        )
        ops.append((f"attention ({a.kind})", cost.times(layers.count)))
    return ops


def _explain_prefill(p: NetworkPricing, chunks: Sequence[tuple[int, int]], windows: bool = True) -> Explained:
    """Attention of prefill chunks; `windows` False prices windowed layers as if they saw every key."""
    if not chunks:
        return []
    pairs, windowed = prefill_pairs(chunks, p.window_tokens)
    windowed = windowed if windows else pairs
    compute_us = pairs * (p.prefill_pair_us(False) + p.index_pair_us()) + windowed * p.prefill_pair_us(True)
    flops = sum(
        layers.count * pair_flops(layers) * (windowed if window_of(layers) else pairs) / p.network.groups
        for layers in p.network.attentions
    )
    memory_us = sum(tokens for tokens, _ in chunks) * p.prefill_token_us()
    cost = PassCost(
        compute_s=compute_us * _US, memory_s=memory_us * _US, launch_s=p.prefill_start_us() * _US, flops=flops
    )
    return [("attention (prefill)", cost)]


def prefill_pairs(chunks: Sequence[tuple[int, int]], window_tokens: int) -> tuple[float, float]:
    """Return the (query, key) pairs of causal chunks, each (tokens, start): all of them, and those within the
    window. As the step counts them, each query sees the context in the middle of its chunk.
    """
    pairs = windowed = 0.0
    for tokens, start in chunks:
        mean_keys = start + tokens / 2
        pairs += tokens * mean_keys
        windowed += tokens * min(mean_keys, window_tokens)
    return pairs, windowed

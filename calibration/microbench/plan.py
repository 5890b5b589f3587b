"""The plan of points, from the networks, their parallelism and formats, and the device."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from calibration.decoder.shape import DecoderShape
from calibration.microbench.benches.attention import attention_points
from calibration.microbench.benches.draft import draft_points
from calibration.microbench.benches.elementwise import elementwise_points
from calibration.microbench.benches.experts import expert_points
from calibration.microbench.benches.launch import launch_points
from calibration.microbench.benches.layer import layer_points
from calibration.microbench.benches.linear import linear_points
from calibration.microbench.benches.memory import memory_points
from calibration.microbench.benches.sampler import sampler_points
from calibration.microbench.device import Device
from calibration.microbench.point import BYTES, BenchPoint
from calibration.microbench.subject import BenchSubject, ShapeGrid, drafter_subject, grid_of, target_subject
from simulator.models.drafter import DrafterModel
from simulator.models.model import Model

_ARENAS = 3
"""Memory pools for weights, KV and the rest, which share the free memory equally."""
_FREE_FRACTION = 0.8


@dataclass(frozen=True)
class BenchPlan:
    """What a session measures.

    `left_out`: what was requested but cannot be measured here, with reasons. `uncovered`: parts of the
    networks that no bench measures on any device. `groups`: GPU counts whose all-reduces are measured.
    """

    points: tuple[BenchPoint, ...]
    grid: ShapeGrid
    left_out: tuple[str, ...]
    uncovered: tuple[str, ...]
    groups: tuple[int, ...] = ()

    def where(self, condition: Callable[[BenchPoint], bool]) -> BenchPlan:
        """The plan with only the points that meet a condition."""
        return replace(self, points=tuple(point for point in self.points if condition(point)))

    def __or__(self, other: BenchPlan) -> BenchPlan:
        """The points of both plans, each once, on the grid of the first."""
        points = {point.key: point for point in (*self.points, *other.points)}
        left_out, uncovered = (
            tuple(dict.fromkeys((*own_ops, *other_ops)))
            for own_ops, other_ops in ((self.left_out, other.left_out), (self.uncovered, other.uncovered))
        )
        groups = tuple(sorted({*self.groups, *other.groups}))
        return BenchPlan(tuple(points.values()), self.grid, left_out, uncovered, groups)

    def visits_s(self, device: Device) -> float:
        """Estimated seconds, from typical rates of such devices; the progress bar corrects the estimate."""
        return self.grid.rounds * sum(_visit_s(point, self.grid, device.on_gpu) for point in self.points)


def make_plan(
    device: Device,
    model: Model,
    drafter: DrafterModel | None,
    tensor_parallel: Sequence[int],
    weights: Sequence[str],
    quick: bool,
) -> BenchPlan:
    """All points of a target on one rank of each parallelism, and of its drafter."""
    grid = grid_of(device.notes.kind, quick)
    formats = [weight_format for weight_format in weights if weight_format != "fp8" or device.fp8]
    no_fp8 = [] if len(formats) == len(weights) else [f"fp8: {device.notes.name} has no fp8 matrix units"]
    points = [*memory_points(grid), *launch_points(device.on_gpu)]
    uncovered: list[str] = []
    subjects = list(_subjects(device, model, drafter, tensor_parallel, formats or ["bf16"]))
    for subject in subjects:
        points += _points_of(subject, grid, device, "fp8" in formats)
        uncovered += _uncovered(subject)
    if "bf16" not in (formats or ["bf16"]):
        uncovered.append("layers in place, which are timed with bf16 matrices: use --dtype bf16,fp8")
    decoders = {subject.decoder for subject in subjects if subject.in_place and subject.decoder is not None}
    free = _FREE_FRACTION * device.free_bytes - sum(_weight_bytes(shape) for shape in decoders)
    fitting, too_large = _that_fit(_heads_once(points), device, max(free, 0.0) / _ARENAS)
    groups = tuple(ranks for ranks in tensor_parallel if 1 < ranks <= device.notes.count)
    return BenchPlan(fitting, grid, (*no_fp8, *too_large), tuple(dict.fromkeys(uncovered)), groups)


def _subjects(
    device: Device,
    model: Model,
    drafter: DrafterModel | None,
    tensor_parallel: Sequence[int],
    weights: Sequence[str],
) -> Iterator[BenchSubject]:
    own_decoder = drafter is not None and drafter.kind == "draft_model"
    layers = 0 if own_decoder else 1 if drafter is None else drafter.model.layer_count
    for ranks in tensor_parallel:
        for weight_format in weights:
            yield target_subject(device, model.with_weights(weight_format), ranks, layers)
        if drafter is not None:
            yield drafter_subject(device, drafter, ranks)


def _points_of(subject: BenchSubject, grid: ShapeGrid, device: Device, fp8: bool) -> Iterator[BenchPoint]:
    yield from linear_points(subject, grid)
    yield from attention_points(subject, grid, device.on_gpu)
    yield from expert_points(subject, grid)
    yield from elementwise_points(subject, grid, fp8)
    yield from sampler_points(subject, grid)
    yield from draft_points(subject, grid, device.on_gpu)
    yield from layer_points(subject, grid, device.on_gpu)


def _heads_once(points: Sequence[BenchPoint]) -> list[BenchPoint]:
    """The points without heads as matrices that are also timed with their norm, because these are the
    slowest.
    """
    heads = {(p.shape["vocab"], p.shape["hidden"]) for p in points if p.bench == "head"}
    return [p for p in points if p.op != "lm_head" or (p.shape["n"], p.shape["k"]) not in heads]


def _uncovered(subject: BenchSubject) -> Iterator[str]:
    """Parts of a network that no bench measures, so that the profile inherits them."""
    network = subject.network
    kinds = {layers.attention.kind for layers in network.attentions} - {"full"}
    if kinds:
        yield f"{network.name}: attention of the kind {', '.join(sorted(kinds))}"
    formats = {matrix.weights for matrix in network.matrices} - set(BYTES)
    if formats:
        yield f"{network.name}: weights in {', '.join(sorted(formats))}"
    if any(experts.weights != "bf16" for experts in network.experts):
        yield f"{network.name}: routed experts in other formats than bf16"


def _weight_bytes(shape: DecoderShape) -> float:
    """Bytes of a decoder that is timed in place, which stays allocated during the session."""
    return BYTES["bf16"] * (shape.layers * shape.layer_parameters + shape.vocab * shape.hidden)


def _that_fit(
    points: Iterable[BenchPoint], device: Device, room: float
) -> tuple[tuple[BenchPoint, ...], list[str]]:
    """The points that need at most `room` bytes, each once, and a line per bench about the others."""
    fitting: dict[str, BenchPoint] = {}
    large: dict[str, dict[str, float]] = {}
    for point in points:
        needed = _needed(point, device)
        if needed <= room:
            fitting[point.key] = point
        else:
            large.setdefault(point.bench, {})[point.key] = needed
    free = room / 2**30
    lines = [
        f"{bench}: {len(sizes)} points need up to {max(sizes.values()) / 2**30:.1f} GiB, {free:.1f} are free"
        for bench, sizes in large.items()
    ]
    return tuple(fitting.values()), lines


def _needed(point: BenchPoint, device: Device) -> float:
    holds = max(point.holds_bytes, 1.0)
    return device.copies_of(holds) * holds


def _visit_s(point: BenchPoint, grid: ShapeGrid, on_gpu: bool) -> float:
    bandwidth, flops_per_s, start_s = (2e12, 3e14, 5e-6) if on_gpu else (1e10, 1e11, 3e-5)
    call_s = start_s + point.bytes / bandwidth + point.flops / flops_per_s
    effort = grid.effort
    return min(effort.max_s, max(effort.min_s, effort.repeats * call_s)) + 4 * call_s

"""The subject of measurements, a network on one rank, and the grid of shapes of a session."""

from __future__ import annotations

from dataclasses import dataclass, replace

from calibration.decoder.shape import DecoderShape
from calibration.microbench.device import Device
from calibration.microbench.timing import Effort
from simulator.costs.network import Network, network
from simulator.errors import InputError
from simulator.models.drafter import DrafterModel
from simulator.models.model import Model

MAX_LAYERS = 64
"""Max layers of a decoder that is timed in place; enough to be cold in turn if a layer has a megabyte or
more.
"""


@dataclass(frozen=True)
class BenchSubject:
    """One network on one rank.

    `decoder` has enough layers to be cold in turn; None if the network has other layers. Layers are timed in
    place only in bf16, with bf16 matrices. `draft_layers`: layers of a draft pass; 0: no draft passes.
    """

    network: Network
    decoder: DecoderShape | None
    draft_layers: int = 0

    @property
    def in_place(self) -> bool:
        """Whether complete layers are timed."""
        return self.decoder is not None and {matrix.weights for matrix in self.network.matrices} == {"bf16"}


def target_subject(device: Device, model: Model, tensor_parallel: int, draft_layers: int = 0) -> BenchSubject:
    """The target on one rank; `draft_layers` of it represent a drafter without its own decoder."""
    shape = _decoder_shape(device, model, tensor_parallel)
    return BenchSubject(network(model, tensor_parallel), shape, draft_layers)


def drafter_subject(device: Device, drafter: DrafterModel, tensor_parallel: int) -> BenchSubject:
    """The drafter on one rank: a draft model is timed in place as well, a head only by its matrices."""
    rank_network = network(drafter.model, tensor_parallel, 1, drafter.fc)
    if drafter.kind != "draft_model":
        return BenchSubject(rank_network, None)
    return BenchSubject(
        rank_network, _decoder_shape(device, drafter.model, tensor_parallel), drafter.model.layer_count
    )


def _decoder_shape(device: Device, model: Model, tensor_parallel: int) -> DecoderShape | None:
    try:
        shape = DecoderShape.of(model, tensor_parallel)
    except InputError:
        return None
    # Without a name, so that a drafter with the same layers shares the decoder.
    layers = min(MAX_LAYERS, device.copies_of(2.0 * shape.layer_parameters))
    return replace(shape, name="", layers=layers)


@dataclass(frozen=True)
class ShapeGrid:
    """The shapes of a session, its rounds and its effort per point.

    `tokens`: of matrices and heads. `few_tokens`: of small kernels and experts. `rows`: of samplers.
    `contexts`: of attention, while a batch has at most `max_cached_tokens`. `layer_contexts`: of layers in
    place. `passes`: of the draft loop. `drafts`: draft lengths of acceptance. `max_spread`: the P90 ÷ P10
    above which a point is measured again.
    """

    tokens: tuple[int, ...]
    few_tokens: tuple[int, ...]
    rows: tuple[int, ...]
    batches: tuple[int, ...]
    queries: tuple[int, ...]
    contexts: tuple[int, ...]
    max_cached_tokens: int
    layer_contexts: tuple[int, ...]
    prefills: tuple[tuple[int, int], ...]
    passes: tuple[int, ...]
    drafts: tuple[int, ...]
    memory_bytes: tuple[int, ...]
    message_bytes: tuple[int, ...]
    rounds: int
    effort: Effort
    max_spread: float

    def steps(self, max_tokens: int) -> list[tuple[int, int]]:
        """All (batch, queries) of at most `max_tokens` tokens."""
        return [(b, q) for b in self.batches for q in self.queries if b * q <= max_tokens]


_MIB = 1 << 20
_STEP_TOKENS = (*range(1, 11), 12, 14, 16, 18, 20, 24, 28, 32, 36, 40, 48, 56, 64, 72, 80, 96, 112, 128, 144)
"""Token counts of 1 to 16 sequences with 1 to 9 tokens each, and values in between."""
_KNOTS = (1, 8, 16, 32, 64, 96, 128, 129, 160, 192, 256, 257, 320, 384, 512, 768, 1024, 2048, 4096)
"""Knots of the cost model, one more token than a tile at two of them, and 320, where fp8 is irregular."""

_CPU = ShapeGrid(
    tokens=_STEP_TOKENS,
    few_tokens=(1, 4, 16, 64, 128),
    rows=(1, 2, 4, 8, 16),
    batches=(1, 2, 4, 8, 16),
    queries=(1, 2, 3, 5, 9),
    contexts=(192, 384, 768, 1280),
    max_cached_tokens=1 << 15,
    layer_contexts=(192, 768),
    prefills=((1, 128), (1, 512), (4, 256)),
    passes=(1, 3),
    drafts=(0, 1, 2, 4, 7),
    memory_bytes=(64 * _MIB, 256 * _MIB),
    message_bytes=(),
    rounds=6,
    effort=Effort(repeats=8, min_s=0.015, max_s=0.3),
    max_spread=1.6,
)
_CPU_QUICK = ShapeGrid(
    tokens=(1, 2, 3, 4, 6, 8, 9, 12, 16, 24, 32, 36, 48, 64, 96, 144),
    few_tokens=(1, 16, 128),
    rows=(1, 2, 4, 8, 16),
    batches=(1, 4, 16),
    queries=(1, 2, 4, 9),
    contexts=(192, 640, 1280),
    max_cached_tokens=1 << 15,
    layer_contexts=(640,),
    prefills=((1, 256),),
    passes=(3,),
    drafts=(0, 2, 7),
    memory_bytes=(64 * _MIB,),
    message_bytes=(),
    rounds=3,
    effort=Effort(repeats=5, min_s=0.006, max_s=0.15),
    max_spread=1.6,
)
_CUDA = ShapeGrid(
    tokens=_KNOTS,
    few_tokens=(1, 4, 16, 64, 256, 1024, 4096),
    rows=(1, 4, 16, 64, 256),
    batches=(1, 4, 16, 64, 256),
    queries=(1, 2, 4, 6, 8, 16),
    contexts=(512, 2048, 8192, 16384),
    max_cached_tokens=2 << 20,
    layer_contexts=(1024,),
    prefills=((1, 512), (1, 2048), (1, 8192), (8, 1024)),
    passes=(1, 3, 8),
    drafts=(0, 1, 3, 5, 7),
    memory_bytes=(64 * _MIB, 512 * _MIB, 4096 * _MIB),
    message_bytes=tuple(2048 << shift for shift in range(0, 16, 3)),
    rounds=2,
    effort=Effort(repeats=20, min_s=0.02, max_s=1.0),
    max_spread=1.1,
)
_CUDA_QUICK = ShapeGrid(
    tokens=(1, 8, 32, 64, 128, 256, 1024, 4096),
    few_tokens=(1, 64, 1024),
    rows=(1, 16, 64),
    batches=(1, 16, 64),
    queries=(1, 4, 8),
    contexts=(512, 4096),
    max_cached_tokens=2 << 20,
    layer_contexts=(1024,),
    prefills=((1, 2048),),
    passes=(3,),
    drafts=(0, 3, 7),
    memory_bytes=(512 * _MIB,),
    message_bytes=(2048, 131072, 8 * _MIB),
    rounds=2,
    effort=Effort(repeats=20, min_s=0.02, max_s=0.5),
    max_spread=1.1,
)


def grid_of(kind: str, quick: bool) -> ShapeGrid:
    """The grid of a device kind."""
    grids: dict[tuple[str, bool], ShapeGrid] = {
        ("cpu", False): _CPU,
        ("cpu", True): _CPU_QUICK,
        ("cuda", False): _CUDA,
        ("cuda", True): _CUDA_QUICK,
    }
    return grids[kind, quick]

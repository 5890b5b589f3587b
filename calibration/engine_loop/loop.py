"""Calibrate on plain decoding, predict, write the predictions down, then measure; a file for every step.

What is there already is not measured again, so that a run that was stopped goes on where it ended.
"""

from __future__ import annotations

import hashlib
import json
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from calibration.engine_loop.calibration_points import (
    SMALL_LAYERS,
    host_methods,
    host_request,
    small_passes,
    target_passes,
)
from calibration.engine_loop.checkpoints import TARGET_LAYERS, checkpoint, write_checkpoints
from calibration.engine_loop.client import BenchClient
from calibration.engine_loop.cpu_time import machine_cpu_s
from calibration.engine_loop.engine_preset import PlainLoad, write_preset
from calibration.engine_loop.engine_profile import profile_of
from calibration.engine_loop.engine_python import run_inside
from calibration.engine_loop.matrix import (
    ACCEPTANCE_LOAD,
    ACCEPTANCE_REQUESTS,
    CALIBRATION_LOADS,
    CALIBRATION_ROUNDS,
    PLAIN,
    EngineVariant,
    LoopCell,
    LoopMatrix,
    round_name,
)
from calibration.engine_loop.predict import Calibrated, write_json
from calibration.engine_loop.predictions import PREDICTIONS, now, written_predictions
from calibration.engine_loop.prompts import write_prompts
from calibration.engine_loop.raw import acceptance_of, raw_cell, read_raw
from calibration.engine_loop.server import SERVER_BYTES, EngineServer

_CALIBRATION_REQUESTS, _CALIBRATION_OUTPUT = {2: 24, 16: 48}, 64
"""Clients → requests of a round of a calibration load; tokens of each."""
_WARM_UP = LoopCell(PLAIN, 8, 16, 4)
Note = Callable[[str], None]


@dataclass
class EngineLoop:
    """One run, in its folder."""

    python: Path
    folder: Path
    matrix: LoopMatrix
    note: Note
    limit_s: float | None = None
    """Seconds after which no further cell is begun; None: all are measured."""
    _servers: dict[str, EngineServer] = field(default_factory=dict, init=False)
    _started_s: float = field(default_factory=time.monotonic, init=False)

    @property
    def files(self) -> Calibrated:
        """Profile, preset and networks."""
        return Calibrated(self.folder, self.folder / "checkpoints")

    @cached_property
    def _variants(self) -> Mapping[str, EngineVariant]:
        return {variant.name: variant for variant in self.matrix.variants}

    def run(self) -> None:
        """All steps. Every process that was started has ended when it returns or raises."""
        (self.folder / "cells").mkdir(parents=True, exist_ok=True)
        layers = {variant.draft_layers for variant in self.matrix.variants if variant.draft_layers}
        write_checkpoints(self.files.checkpoints, {TARGET_LAYERS, SMALL_LAYERS, *layers})
        target = checkpoint(self.files.checkpoints, TARGET_LAYERS)
        write_prompts(self.folder / "prompts.jsonl", target)
        self._calibrate_passes()
        prompts, log = self.folder / "prompts.jsonl", self.folder / "client.log"
        with interrupted_when_terminated(), BenchClient(self.python, target, prompts, log) as client:
            try:
                self._calibrate_host(client)
                for variant in self.matrix.variants:
                    if variant.name != PLAIN:
                        self._accept(variant, client)
                self._predict()
                self._measure(client)
            finally:
                for server in self._servers.values():
                    server.stop()

    def _calibrate_passes(self) -> None:
        """Passes of plain engine cores and the host's work on stubs, made into the profile."""
        checkpoints, log = self.files.checkpoints, self.folder / "core.log"

        def core(request: Mapping[str, Any]) -> Any:
            return run_inside(self.python, "core_spans.py", request, log)

        methods = host_methods(checkpoints)
        stages: dict[str, Callable[[], Any]] = {
            "target": lambda: core(target_passes(checkpoints)),
            "small": lambda: core(small_passes(checkpoints)),
            "host": lambda: {name: core(host_request(checkpoints, spec)) for name, spec in methods.items()},
        }
        answers = {name: self._once(f"passes-{name}.json", make) for name, make in stages.items()}
        self._once("profile.json", lambda: profile_of(answers["target"], answers["small"], answers["host"]))

    def _once(self, name: str, make: Callable[[], Any]) -> Any:
        """The document of a file, made if it is not there."""
        path = self.folder / name
        if not path.exists():
            self.note(f"making {name}")
            write_json(path, make())
        return json.loads(path.read_text("utf-8"))

    def _server(self, name: str, client: BenchClient) -> EngineServer:
        """The frozen server of a variant, started and warmed up if it does not run.

        Where memory is short, the one that was not used for longest ends first.
        """
        if name in self._servers:
            self._servers[name] = self._servers.pop(name)
            return self._servers[name]
        while len(self._servers) >= self._most_servers:
            self._servers.pop(next(iter(self._servers))).stop()
        self.note(f"starting vLLM: {name}")
        server = self._servers[name] = EngineServer(
            self.python,
            checkpoint(self.files.checkpoints, TARGET_LAYERS),
            self._variants[name].speculative_config(self.files.checkpoints),
            self.folder / f"server-{name}.log",
        )
        server.wait()
        client.run(server.url, _WARM_UP, self.folder / "warm-up.json")
        server.freeze()
        return server

    @cached_property
    def _most_servers(self) -> int:
        """Servers that fit the memory at the start, at least one."""
        lines = Path("/proc/meminfo").read_text("utf-8").splitlines()
        (free_kib,) = (int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))
        return max(1, int(1024 * free_kib / SERVER_BYTES))

    @contextmanager
    def _thawed(self, name: str, client: BenchClient) -> Iterator[EngineServer]:
        server = self._server(name, client)
        server.thaw()
        try:
            yield server
        finally:
            server.freeze()

    def _bench(self, cell: LoopCell, client: BenchClient, number: int = 1) -> dict[str, Any]:
        """Run one round of a cell, and return its raw document. Each round has arrivals of its own."""
        with self._thawed(cell.variant, client) as server:
            before, begun = server.metrics(), now()
            clocks: dict[str, Callable[[], float]] = {
                "front_end_cpu_s": server.front_end_cpu_s,
                "other_cpu_s": lambda: machine_cpu_s() - server.cpu_s() - client.cpu_s(),
            }
            at_start = {name: clock() for name, clock in clocks.items()}
            bench = client.run(server.url, cell, self.folder / "bench.json", number - 1)
            spent = {name: clock() - at_start[name] for name, clock in clocks.items()}
            return raw_cell(cell, begun, bench, before, server.metrics()) | spent

    def _calibrate_host(self, client: BenchClient) -> None:
        """Two plain loads in turns, made into the preset."""
        if self.files.preset.exists():
            return
        cells = [
            LoopCell(PLAIN, _CALIBRATION_REQUESTS[clients], _CALIBRATION_OUTPUT, clients)
            for clients in CALIBRATION_LOADS
        ]
        raws: dict[str, list[dict[str, Any]]] = {cell.name: [] for cell in cells}
        for number in range(1, CALIBRATION_ROUNDS + 1):
            for cell in cells:
                name = f"calibration-{round_name(cell.name, number)}.json"
                raws[cell.name].append(self._once(name, partial(self._bench, cell, client)))
        low, high = (PlainLoad.of_rounds(rounds) for rounds in raws.values())
        host = json.loads((self.folder / "passes-host.json").read_text("utf-8"))
        write_preset((low, high), host, self.files)

    def _accept(self, variant: EngineVariant, client: BenchClient) -> None:
        """Count what the engine accepts; no time of this run is read."""
        cell = LoopCell(variant.name, ACCEPTANCE_REQUESTS, _CALIBRATION_OUTPUT, ACCEPTANCE_LOAD)
        self._once(self.files.acceptance(variant).name, lambda: acceptance_of(self._bench(cell, client)))

    def _predict(self) -> None:
        """Write down what every cell will take, before any of them is measured."""
        low = read_raw(self.folder / f"calibration-{PLAIN}-c{CALIBRATION_LOADS[0]}.json")
        prompt_tokens = sum(low["input_tokens"]) / len(low["input_tokens"])

        self._once(PREDICTIONS, lambda: written_predictions(self.matrix, self.files, prompt_tokens))
        digest = hashlib.sha256((self.folder / PREDICTIONS).read_bytes()).hexdigest()
        self.note(f"predictions are written, sha256 {digest}")

    def _measure(self, client: BenchClient) -> None:
        for cell, number in self.matrix.visits():
            name = round_name(cell.name, number)
            if self.limit_s is not None and time.monotonic() - self._started_s > self.limit_s:
                self.note(f"time is up: {name} and later cells are not measured")
                return
            self._once(f"cells/{name}.json", partial(self._bench, cell, client, number))


@contextmanager
def interrupted_when_terminated() -> Iterator[None]:
    """Within the block SIGTERM raises KeyboardInterrupt, as SIGINT does, so that servers are stopped."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)

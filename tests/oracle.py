"""A second opinion on `docs/step.md`: the same engine in dicts and lists, written without sight of the step.

Plain data in and out, nothing of the simulator, no speed. Covered: plain decoding, chains, trees, one pass
for all drafts, n-gram in both profiles, matches of limited length, a draft length of each request, chunked
and whole prefill, prefill apart, preemption, ghost rows, stops, closed loop, known arrivals, timeouts,
cancellations, prefix caching with blocks that have an address. Not: sessions, effects per request, traces.
"""

from collections import Counter
from collections.abc import Callable
from math import floor
from typing import Any

from tests.oracle_blocks import BlockPool, Record
from tests.oracle_prices import PricedSteps

# (request, stream: 0 survival, 1 match, 4 length of a match; 1-based output position)
Uniform = Callable[[int, int, int], float]

TIMES = ("admitted_ns", "first_ns", "last_ns", "ended_ns")  # -1: not yet
COUNTS = ("emitted_tokens", "drafted_tokens", "accepted_tokens", "draft_rounds", "decode_rounds")
OTHERS = ("max_itl_ns", "preemptions", "computed", "drafts", "keyed", "matched")


def run_oracle(
    engine: Record, prices: Record, requests: list[Record], acceptance: Record, uniform: Uniform
) -> Record:
    """Simulate until nothing more can happen: what became of each request, counters, and per step a tuple
    (start, host, verify, accept, draft, hidden ns, mode, padded, [(request, n, k, decodes, start, samples)]).
    """
    return Oracle(engine, prices, requests, acceptance, uniform).run()


class Oracle(PricedSteps, BlockPool):
    """`flight` holds what is on the GPU while a plan is composed: entries by request number, as in a plan."""

    def __init__(
        self, engine: Record, prices: Record, requests: list[Record], acceptance: Record, uniform: Uniform
    ):
        self.engine, self.prices, self.acceptance, self.uniform = engine, prices, acceptance, uniform
        self.on, self.timeout = engine["mechanisms"], engine["timeout_ns"]
        self.longest, self.counters = engine["max_context_tokens"], Counter[str]()
        self.make_blocks()
        self.overlaps = engine["asynchronous"] and self.on["host_overlap"]
        self.junk_on_miss = acceptance["kind"] == "gated" and not engine["ragged"]
        self.waiting, self.running, self.launched = list[Record](), list[Record](), 0
        self.coming, self.looped, self.texts = (
            list[Record](),
            list[Record](),
            list[Record](),
        )  # before waiting
        self.share, self.carry, self.shared_until, self.tokenizer_free = 0, 0, 0, 0
        self.steps: list[tuple[Any, ...]] = []
        new = {"status": "unfinished", **dict.fromkeys(TIMES, -1), **dict.fromkeys(COUNTS + OTHERS, 0)}
        self.requests: list[Record] = [request | new for request in requests]
        for number, r in enumerate(self.requests):  # a cancellation stops it, unforeseen
            stop = min(r["cancel_after_tokens"] or r["output_tokens"], r["output_tokens"])
            r |= {"number": number, "stop": stop, "half": stop // 2, "blocks": []}

    # §2, §3.1, §6, §7: a request's life
    def may_draft(self, r: Record) -> bool:
        most = self.engine["drafter_max_context_tokens"]
        short = most is None or r["prompt_tokens"] + r["emitted_tokens"] <= most
        return bool(short and self.acceptance["drafts"][r["traffic_class"]])

    def drafts(self, r: Record, k: int) -> int:
        """Of the K of a step, what this request gets: it may have a limit of its own."""
        return int(min(k, r.get("draft_length", k)))

    def never_runs(self, r: Record) -> bool:
        total_tokens, spare = r["prompt_tokens"] + r["stop"], self.engine["slots_per_request"]
        cut = self.engine["chunked_prefill"] or total_tokens + spare <= self.engine["max_num_batched_tokens"]
        slots = total_tokens - 1 + self.engine["lookahead_tokens"] + self.engine["padded_drafts"]
        slots = min(slots + (self.engine["reserved_output"] > 0), self.longest)
        return not cut or slots > self.engine["total_blocks"] * self.size or total_tokens > self.longest

    def next_events(self) -> list[tuple[int, int, int]]:
        """In order: (instant, 0 gives up 1 joins 2 leaves the loop 3 arrives 4 enters it, request number)."""
        host, known = self.engine["host"], [r for r in self.requests if r["ended_ns"] < 0 <= r["arrival_ns"]]
        ways = (self.coming, self.looped, self.texts, self.waiting, self.running)
        here = {r["number"] for way in ways for r in way}
        events = [(r["arrival_ns"], 3, r["number"]) for r in known if r["number"] not in here]
        if self.timeout is not None:
            patient = [r for r in known if r["number"] in here]
            events += [(r["arrival_ns"] + self.timeout, 0, r["number"]) for r in patient]
        events += [(r["arrival_ns"] + host["request_latency_ns"], 4, r["number"]) for r in self.coming[:1]]
        for r in self.looped[:1]:
            left = (r["parsed"] - self.share) * len(self.looped) - self.carry
            events.append((self.shared_until + max(0, left), 2, r["number"]))
        return sorted(events + [(r["tokenized"], 1, r["number"]) for r in self.texts[:1]])

    def clients(self, now: int) -> None:
        """§2, §3.1. Everything up to `now`; each end can bring an arrival, in the past too."""
        host = self.engine["host"]
        while (events := self.next_events()) and events[0][0] <= now:
            at, what, number = events[0]
            r = self.requests[number]
            if what == 0 or (what == 3 and self.never_runs(r)):
                self.end(r, "rejected" if what else "timed_out", at)
            elif what == 1:
                self.texts.remove(r)
                self.waiting += [r] if r["ended_ns"] < 0 else []
            elif what == 3:
                self.coming.append(r)
            else:
                heads, total = len(self.looped), at - self.shared_until + self.carry
                gain, self.carry = divmod(total, heads) if heads else (0, 0)
                self.share, self.shared_until = self.share + gain, at
                if what == 4:
                    r["parsed"] = self.share + host["request_ns"]
                    self.looped.append(self.coming.pop(0))
                else:
                    text = floor(host["prompt_token_ns"] * r["prompt_tokens"] + 0.5)
                    self.tokenizer_free = max(self.tokenizer_free, at) + text
                    r["tokenized"] = self.tokenizer_free
                    self.texts.append(self.looped.pop(0))

    def end(self, r: Record, status: str, at: int) -> None:
        """Done, cancelled, timed out or rejected: blocks go back, a free client issues the next request."""
        self.give_back(r)
        r |= {"status": status, "ended_ns": at}
        self.waiting, self.running = ([q for q in x if q is not r] for x in (self.waiting, self.running))
        for follower in [q for q in self.requests if q["arrival_ns"] < 0][:1]:
            follower["arrival_ns"] = at + self.engine["think_time_ns"]

    def preempt(self, r: Record) -> None:
        self.give_back(r)
        r |= {"computed": 0, "drafts": 0, "preemptions": r["preemptions"] + 1}
        self.counters["preemptions"] += 1
        self.running.remove(r)
        self.waiting.insert(0, r)

    # §3: compose
    def schedule(self, now: int, in_flight: Record) -> Record:
        self.in_flight, self.flight_k = in_flight["entries"], in_flight["K"]
        self.clients(now)
        budget, apart = self.engine["max_num_batched_tokens"], not self.engine["mixes_prefill"]
        plan: Record = {"entries": {}, "tokens": budget, "slots": budget, "preempted": False, "chunks": False}
        self.schedule_running(plan, decodes=(False,) if apart else (False, True))
        self.admit(plan, now)
        if apart and not plan["entries"]:
            self.schedule_running(plan, decodes=(True,))
        if plan["preempted"] and not plan["entries"]:
            return self.schedule(now, in_flight)  # preemption kept the queue closed
        plan["K"] = self.engine["draft_length_by_batch"][len(plan["entries"])]
        sampling = [e["request"] for e in plan["entries"].values() if e["samples"]]
        plan["drafts"] = plan["K"] > 0 and any(self.may_draft(r) for r in sampling)
        plan["may_draft"] = any(self.may_draft(e["request"]) for e in plan["entries"].values())
        return plan

    def fit(self, plan: Record, want: int) -> int:
        return int(min(want, plan["tokens"], max(0, plan["slots"] - self.engine["slots_per_request"])))

    def blocks_missing(self, r: Record, n: int) -> int:
        slots = min(r["computed"] + n + self.engine["lookahead_tokens"], self.longest)
        return int(max(0, -(-slots // self.size) - len(r["blocks"])))

    def schedule_running(self, plan: Record, decodes: tuple[bool, ...]) -> None:
        """§3.3. The last running request is always this one or one that is not scheduled yet."""
        for r in list(self.running):
            drafts, pending, entry = r["drafts"], 0, self.in_flight.get(r["number"])
            if entry and entry["samples"]:
                pending, drafts = 1 + entry["k"], self.drafts(r, self.flight_k) if self.may_draft(r) else 0
                foreseen = self.engine["stop_is_foreseen"] and r["emitted_tokens"] + 1 >= r["output_tokens"]
                ghost = r["emitted_tokens"] + self.accepted(r, entry["k"]) + 1 >= r["stop"]
                if foreseen or (ghost and not self.on["ghost_rows"]):
                    continue
            known = r["prompt_tokens"] + r["emitted_tokens"] + pending
            owed = known - r["computed"]
            n = min(self.fit(plan, owed + drafts), self.longest - 1 - r["computed"])
            decoding = owed == 1 if len(decodes) == 2 else r["samples"]
            is_complete = owed == 1 or self.engine["chunked_prefill"] or n == owed
            if decoding not in decodes or n <= 0 or not is_complete or r not in self.running:
                continue
            while self.blocks_missing(r, n) > len(self.free):
                victim, plan["preempted"] = self.running[-1], True
                self.preempt(victim)
                if victim is r:
                    return
            k = max(0, n - owed)
            self.counters["cut_drafts"] += drafts - k
            plan["chunks"] |= not r["samples"]
            self.enter(plan, r, n, k, known, decodes=decoding)

    def admit(self, plan: Record, now: int) -> None:
        """§3.4. First come, first served; a preempted request waits for the result of its last entry."""
        ran, padding = bool(plan["entries"]), self.engine["padded_drafts"]
        while self.waiting and len(self.running) < self.engine["max_num_seqs"] and not plan["preempted"]:
            r = self.waiting[0]
            known, hit_tokens = r["prompt_tokens"] + r["emitted_tokens"], self.find(r)
            computed = len(hit_tokens) * self.size
            n = self.fit(plan, known - computed)
            is_complete = n > 0 and (self.engine["chunked_prefill"] or n == known - computed)
            fills = known - computed == 1 and padding > 0 and (ran or computed > 0) and not plan["chunks"]
            if fills and computed + padding + 2 <= self.longest:
                n = 1 + padding
                is_complete = self.fit(plan, n) == n
            fills = n > known - computed
            slots = min(computed + n + self.engine["lookahead_tokens"], self.longest)
            need = -(-max(slots, known) // self.size) - len(hit_tokens)
            if r["number"] in self.in_flight or not is_complete:
                return
            if need > len(self.free) - sum(block["holders"] == 0 for block in hit_tokens):
                return
            if (
                self.reserved(r, len(hit_tokens), self.engine["reserved_output"])
                > self.engine["total_blocks"]
            ):
                self.counters["promises"] += 1
                return
            self.running.append(self.waiting.pop(0))
            r["admitted_ns"] = now if r["admitted_ns"] < 0 else r["admitted_ns"]
            self.hold(r, hit_tokens)
            self.counters["padded"] += fills
            self.enter(plan, r, n, padding if fills else 0, known, decodes=fills, padded=fills)

    def reserved(self, new: Record, hit_tokens: int, share: float) -> int:
        """Blocks set aside for the running requests and a new one; 0 when nothing is set aside."""
        for r in [new] if share > 0 else []:
            end = r["prompt_tokens"] + max(r["emitted_tokens"], floor(share * r["stop"]))
            r["reservation"] = -(-(end + self.engine["lookahead_tokens"]) // self.size) - hit_tokens
        return sum(r["reservation"] for r in [*self.running, new]) if share > 0 else 0

    def enter(
        self, plan: Record, r: Record, n: int, k: int, known: int, decodes: bool, padded: bool = False
    ) -> None:
        start = r["computed"]
        self.take(r, self.blocks_missing(r, n))
        r |= {"computed": start + n, "samples": start + n >= known}
        if not self.engine["keys_after_results"]:
            self.give_keys(r, min(start + n, r["prompt_tokens"] + r["emitted_tokens"]))
        entry = {"request": r, "n": n, "k": k, "decodes": decodes, "start": start, "samples": r["samples"]}
        plan["entries"][r["number"]] = entry | {"padded": padded}
        plan["tokens"] -= n
        plan["slots"] -= n + self.engine["slots_per_request"]

    # §7: apply
    def match(self, r: Record) -> bool:
        """Does the lookup for the round that starts at the next output position match?"""
        chances = self.acceptance["match_after_match" if r["matched"] else "match_after_miss"]
        return bool(self.uniform(r["number"], 1, r["emitted_tokens"] + 1) < chances[r["traffic_class"]])

    def matched_tokens(self, r: Record, k: int) -> int:
        """Of k drafts, those that the match of this round is long enough for."""
        lengths = self.acceptance.get("match_drafts")
        if lengths is None:
            return k
        of_class = lengths[r["traffic_class"]]
        u = self.uniform(r["number"], 4, r["emitted_tokens"] + 1)
        return int(min(k, of_class[int(u * len(of_class))]))

    def accepted(self, r: Record, k: int) -> int:
        if k > 0 and self.junk_on_miss and not self.match(r):
            return 0
        k = self.matched_tokens(r, self.reach(k))
        chances, position, j = self.acceptance["conditional"][r["traffic_class"]], r["emitted_tokens"] + 1, 0
        while j < k and self.uniform(r["number"], 0, position + j) < chances[j]:
            j += 1
        return j

    def update(self, plan: Record, m: int) -> None:
        self.clients(m - 1)  # results come before whatever else falls on their instant
        for e in plan["entries"].values():
            r = e["request"]
            if r["ended_ns"] >= 0:
                self.counters["ghost_rows"] += e["n"]
                continue
            if self.engine["keys_after_results"] and not e["decodes"] and r not in self.waiting:
                self.give_keys(r, min(e["start"] + e["n"], r["prompt_tokens"] + r["emitted_tokens"]))
            if e["samples"]:
                self.emit(r, e["k"], e["decodes"], e["padded"], plan["K"], m)

    def emit(self, r: Record, k: int, decodes: bool, padded: bool, next_k: int, m: int) -> None:
        preempted = r in self.waiting  # since its entry was made
        got = 0 if padded else self.accepted(r, k)
        if k > 0 and self.junk_on_miss and not padded:
            r["matched"] = self.match(r)
        tokens = min(got + 1, r["stop"] - r["emitted_tokens"]) if self.on["stop_trim"] else got + 1
        self.counters["trimmed_tokens"] += got + 1 - tokens
        for name, count in zip(COUNTS, (tokens, k, got, int(k > 0), int(decodes)), strict=True):
            r[name] += count
        r["computed"] -= 0 if preempted else k - got
        r["max_itl_ns"] = max(r["max_itl_ns"], m - r["last_ns"] if r["first_ns"] >= 0 else 0)
        r |= {"first_ns": m if r["first_ns"] < 0 else r["first_ns"], "last_ns": m, "drafts": 0}
        last = r["emitted_tokens"] >= r["stop"]
        if (last if self.engine["keys_after_results"] else self.engine["asynchronous"]) and not preempted:
            self.give_keys(r, r["prompt_tokens"] + r["emitted_tokens"] - 1)
        if last:
            self.end(r, "cancelled" if r["stop"] < r["output_tokens"] else "done", m)
        elif next_k > 0 and self.may_draft(r) and not preempted:
            r["matched"] = self.match(r) if self.engine["ragged"] else r["matched"]
            ragged, drafts = self.engine["ragged"], self.drafts(r, next_k)
            r["drafts"] = drafts if not ragged else self.matched_tokens(r, drafts) if r["matched"] else 0

    # §5: the clock
    def run(self) -> Record:
        now, nothing = -1, {"entries": dict[int, Record](), "K": 0}
        while True:
            plan, scheduled_step = self.schedule(now, nothing), now
            if not plan["entries"]:
                if not self.next_events():
                    return {"requests": self.requests, "counters": self.counters, "steps": self.steps}
                now = self.next_events()[0][0]
            while plan["entries"]:  # `now`: the GPU is free; `composed`: the instant at which `plan` was made
                start = max(now, scheduled_step + self.host(plan)[1])
                ns, mode, padded = self.price(plan)
                if mode == "eager":  # §4: the host launches it kernel by kernel
                    begun = (
                        max(scheduled_step, self.launched) + ns["hidden_ns"]
                        if self.on["host_overlap"]
                        else start
                    )
                    self.launched = begun + floor(self.prices["launching_eager_ns"] + 0.5)
                    ns["verify_ns"] = max(ns["verify_ns"], self.launched - start)
                following = self.schedule(start, plan) if self.engine["asynchronous"] else nothing
                accepted = start + ns["host_ns"] + ns["verify_ns"] + ns["accept_ns"]
                now, scheduled_step = accepted + ns["draft_ns"], start
                entries = [(i, *list(e.values())[1:]) for i, e in plan["entries"].items()]
                self.steps.append((start, *ns.values(), mode, padded, entries))
                mixed = len({e["decodes"] for e in plan["entries"].values()}) - 1
                self.counters.update({**ns, "steps": 1, f"{mode}_steps": 1, "mixed_steps": mixed})
                self.update(plan, accepted if self.engine["emits_before_drafting"] else now)
                plan = following

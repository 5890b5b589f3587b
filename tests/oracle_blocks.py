"""The oracle's KV blocks (`docs/step.md` §8), each with an address."""

from collections import Counter
from typing import Any

Record = dict[str, Any]


class BlockPool:
    """Blocks with contents and holders; those without holders wait in a queue to be reused."""

    engine: Record
    counters: Counter[str]

    def make_blocks(self) -> None:
        self.size = self.engine["block_tokens"]
        # The first to be reused comes first; and who has a content, in the order in which they got it.
        self.free: list[Record] = [{"key": None, "holders": 0} for _ in range(self.engine["total_blocks"])]
        self.in_memory: dict[Any, list[Record]] = {}

    def key(self, r: Record, index: int) -> Any:
        """What stands in a block of a request: what its prompt's names say, else something of its own."""
        names, per_name = r["prefix_ids"], max(1, self.engine["prefix_block_tokens"] // self.size)
        named = index < len(names) * per_name
        return (names[index // per_name], index % per_name) if named else ("own", r["number"], index)

    def find(self, r: Record) -> list[Record]:
        """The leading blocks in memory, never all of them: one token at least is computed."""
        blocks = list[Record]()
        most = (r["prompt_tokens"] + r["emitted_tokens"] - 1) // self.size
        while len(blocks) < most and (copies := self.in_memory.get(self.key(r, len(blocks)))):
            blocks.append(copies[0])
        return blocks[:-1] if self.engine["loses_last_match"] else blocks

    def hold(self, r: Record, blocks: list[Record]) -> None:
        for block in blocks:
            if block["holders"] == 0:
                self.free = [other for other in self.free if other is not block]
            block["holders"] += 1
        r |= {"blocks": list(blocks), "keyed": len(blocks), "computed": len(blocks) * self.size}
        self.counters["prefix_hit_tokens"] += r["computed"]

    def take(self, r: Record, count: int) -> None:
        for block in self.free[:count]:
            if block["key"] is not None:
                self.in_memory[block["key"]] = [
                    copy for copy in self.in_memory[block["key"]] if copy is not block
                ]
            block |= {"key": None, "holders": 1}
            r["blocks"].append(block)
        del self.free[:count]

    def give_keys(self, r: Record, tokens: int) -> None:
        """Let the full blocks of a request's first tokens be found."""
        while self.engine["prefix_caching"] and (r["keyed"] + 1) * self.size <= tokens:
            block, key = r["blocks"][r["keyed"]], self.key(r, r["keyed"])
            block["key"] = key
            self.in_memory.setdefault(key, []).append(block)
            r["keyed"] += 1

    def give_back(self, r: Record) -> None:
        for block in r["blocks"]:
            block["holders"] -= 1
        left = [block for block in reversed(r["blocks"]) if block["holders"] == 0]
        self.free[:0] = [block for block in left if block["key"] is None]
        self.free += [block for block in left if block["key"] is not None]
        r |= {"blocks": [], "keyed": 0}

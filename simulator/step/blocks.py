"""KV blocks: held by requests, free, or kept for their contents until a request needs the memory.

Memory is counted, not addressed. A request may share its leading full hash blocks (`prefix_ids`) with other
requests; the rest of its blocks are its own. A hash block that no request holds stays in memory, and the
least recently used leaves first, as in vLLM's block pool (V1, `v1/core/block_pool.py`). Two requests that
compute one hash at the same time end with one copy.

A hash block may be several KV blocks: `prefix_block_tokens` ÷ `block_tokens` of them.
"""

from __future__ import annotations

from simulator.numerics.compiled import compiled
from simulator.step.views import (
    Engine,
    hash_holders_of,
    hash_newer_of,
    hash_older_of,
    prefix_ids_of,
    prefix_start_of,
    request_at,
    totals_of,
)


@compiled(inline=True)
def available_blocks(e: Engine) -> int:
    """Return the blocks that a request can get: the free ones and those kept for their contents only."""
    return e.free_blocks + e.cached_blocks


@compiled()
def _unlink(e: Engine, block: int) -> None:
    """Take a hash block out of the ring of kept blocks."""
    older, newer = hash_older_of(e)[block], hash_newer_of(e)[block]
    hash_newer_of(e)[older] = newer
    hash_older_of(e)[newer] = older


@compiled()
def _keep(e: Engine, block: int) -> None:
    """Put a hash block at the recent end of the ring of kept blocks."""
    anchor = len(hash_holders_of(e))
    newest = hash_older_of(e)[anchor]
    hash_newer_of(e)[newest] = block
    hash_older_of(e)[block] = newest
    hash_newer_of(e)[block] = anchor
    hash_older_of(e)[anchor] = block


@compiled()
def take_blocks(e: Engine, count: int) -> None:
    """Take `count` blocks, and evict the least recently used kept ones as needed. The caller has checked that
    there are as many.
    """
    if count > e.free_blocks:
        anchor = len(hash_holders_of(e))
        per_hash = e.prefix_block_tokens // e.block_tokens
        while e.free_blocks < count:
            victim = hash_newer_of(e)[anchor]
            _unlink(e, victim)
            hash_holders_of(e)[victim] = -1
            e.cached_blocks -= per_hash
            e.free_blocks += per_hash
    e.free_blocks -= count
    used = e.total_blocks - e.free_blocks - e.cached_blocks
    totals_of(e)[0].peak_blocks = max(totals_of(e)[0].peak_blocks, used)


@compiled()
def release_blocks(e: Engine, r: int) -> None:
    """Give back all blocks of request `r` and what was reserved for it. Its hash blocks stay in memory while
    no request needs the room.
    """
    q = request_at(e, r)
    held = q.capacity // e.block_tokens
    if q.shared_hashes > 0:
        per_hash = e.prefix_block_tokens // e.block_tokens
        held -= q.shared_hashes * per_hash
        # From the last to the first: the deepest is evicted first, because no later request can match it
        # without all those before it.
        for index in range(q.shared_hashes - 1, -1, -1):
            block = prefix_ids_of(e)[prefix_start_of(e)[r] + index]
            hash_holders_of(e)[block] -= 1
            if hash_holders_of(e)[block] == 0:
                _keep(e, block)
                e.cached_blocks += per_hash
        q.shared_hashes = 0
    e.free_blocks += held
    q.capacity = 0
    e.reserved_blocks -= q.reserved
    q.reserved = 0


@compiled()
def matched_hashes(e: Engine, r: int) -> int:
    """Return how many leading hash blocks of request `r` are in memory."""
    if e.prefix_block_tokens == 0:
        return 0
    start, stop = prefix_start_of(e)[r], prefix_start_of(e)[r + 1]
    for index in range(start, stop):
        if hash_holders_of(e)[prefix_ids_of(e)[index]] < 0:
            return index - start
    return stop - start


@compiled()
def hold_matched(e: Engine, r: int, count: int) -> None:
    """Let request `r` hold its first `count` hash blocks, which are in memory."""
    q = request_at(e, r)
    per_hash = e.prefix_block_tokens // e.block_tokens
    for index in range(count):
        block = prefix_ids_of(e)[prefix_start_of(e)[r] + index]
        if hash_holders_of(e)[block] == 0:
            _unlink(e, block)
            e.cached_blocks -= per_hash
        hash_holders_of(e)[block] += 1
    q.shared_hashes = count
    q.capacity = count * e.prefix_block_tokens


@compiled()
def unheld_matched(e: Engine, r: int, count: int) -> int:
    """Return how many of the first `count` matched hash blocks no request holds: they count as available."""
    unheld = 0
    for index in range(count):
        if hash_holders_of(e)[prefix_ids_of(e)[prefix_start_of(e)[r] + index]] == 0:
            unheld += 1
    return unheld


@compiled()
def share_computed(e: Engine, r: int, computed: int) -> None:
    """Register the hash blocks that the first `computed` tokens of request `r` fill, so that later requests
    find them.
    """
    q = request_at(e, r)
    per_hash = e.prefix_block_tokens // e.block_tokens
    count = prefix_start_of(e)[r + 1] - prefix_start_of(e)[r]
    while q.shared_hashes < count and (q.shared_hashes + 1) * e.prefix_block_tokens <= computed:
        block = prefix_ids_of(e)[prefix_start_of(e)[r] + q.shared_hashes]
        if hash_holders_of(e)[block] < 0:
            hash_holders_of(e)[block] = 1  # its own blocks become the shared copy
        else:
            if hash_holders_of(e)[block] == 0:
                _unlink(e, block)
                e.cached_blocks -= per_hash
            hash_holders_of(e)[block] += 1
            e.free_blocks += per_hash  # another request computed the same: this copy goes back
        q.shared_hashes += 1

"""KV blocks: held by requests, free, or kept for their contents until a request needs the memory.

As in vLLM V1 (`v1/core/block_pool.py`, `kv_cache_manager.py`). A full block whose tokens are known gets a key
as it is scheduled, and stays in memory when no request holds it. Blocks with a key leave in the order in
which they came free; those without one are reused first. A block is not replaced by an equal one: two copies
of one key may be in memory, and a request is given the older one.

Memory is counted, not addressed. Only what another request may find, or its own request when it returns, is a
*piece* of its own (`state.PIECE`): a block that `prefix_ids` names, or a block of a preempted request. The
other blocks of a running request are counted, and become one piece when it ends. No request finds them, but
they leave in their turn.
"""

from __future__ import annotations

from simulator.numerics.compiled import compiled
from simulator.step.views import (
    Engine,
    cache_buckets_of,
    held_pieces_of,
    item,
    piece_at,
    prefix_ids_of,
    prefix_start_of,
    request_at,
    totals_of,
)

NO_PIECE = 0
"""The anchor of the ring of pieces that no request holds."""
NO_KEY = -1
OWN_KEY_BITS = 32
"""The key of a block without a name: its request, shifted by this many bits, plus its index."""
SPREAD = 0x9E3779B
"""An odd number, which spreads the own blocks of requests over the buckets."""


@compiled(inline=True)
def available_blocks(e: Engine) -> int:
    """Return the blocks that a request can get: the free ones and those kept for their contents only."""
    return e.free_blocks + e.cached_blocks


@compiled(inline=True)
def _key(e: Engine, r: int, index: int) -> int:
    """Return the key of block `index` of request `r`."""
    if index >= request_at(e, r).named_blocks:
        return ((r + 1) << OWN_KEY_BITS) + index
    per_name = e.prefix_block_tokens // e.cache_block_tokens
    if per_name == 1:
        return item(prefix_ids_of(e), item(prefix_start_of(e), r) + index)
    return (
        item(prefix_ids_of(e), item(prefix_start_of(e), r) + index // per_name) * per_name + index % per_name
    )


@compiled(inline=True)
def _bucket(e: Engine, key: int) -> int:
    return (key ^ (key >> OWN_KEY_BITS) * SPREAD) & (len(cache_buckets_of(e)) - 1)


@compiled(inline=True)
def _held_index(e: Engine, r: int, index: int) -> int:
    """Return where `held_pieces` has the named block `index` of request `r`."""
    return item(prefix_start_of(e), r) * (e.prefix_block_tokens // e.cache_block_tokens) + index


@compiled()
def _oldest_copy(e: Engine, key: int) -> int:
    """Return the piece that was first in memory with this key, NO_PIECE when there is none."""
    piece = item(cache_buckets_of(e), _bucket(e, key))
    while piece != NO_PIECE and piece_at(e, piece).key != key:
        piece = piece_at(e, piece).next_in_bucket
    return piece


@compiled()
def _new_piece(e: Engine, key: int, blocks: int, holders: int) -> int:
    """Return a new piece of `blocks` KV blocks. One with a key is found from now on."""
    piece = e.unused_piece
    if piece != NO_PIECE:
        e.unused_piece = piece_at(e, piece).next_in_bucket
    else:
        e.piece_count += 1
        piece = e.piece_count
    record = piece_at(e, piece)
    record.key = key
    record.blocks = blocks
    record.holders = holders
    record.next_in_bucket = NO_PIECE
    if key != NO_KEY:
        buckets = cache_buckets_of(e)
        bucket = _bucket(e, key)
        last = item(buckets, bucket)
        if last == NO_PIECE:
            buckets[bucket] = piece
        else:
            while piece_at(e, last).next_in_bucket != NO_PIECE:
                last = piece_at(e, last).next_in_bucket
            piece_at(e, last).next_in_bucket = piece
    return piece


@compiled()
def _forget(e: Engine, piece: int) -> None:
    """Drop a piece that has left the memory."""
    record = piece_at(e, piece)
    if record.key != NO_KEY:
        buckets = cache_buckets_of(e)
        bucket = _bucket(e, record.key)
        if item(buckets, bucket) == piece:
            buckets[bucket] = record.next_in_bucket
        else:
            before = item(buckets, bucket)
            while piece_at(e, before).next_in_bucket != piece:
                before = piece_at(e, before).next_in_bucket
            piece_at(e, before).next_in_bucket = record.next_in_bucket
    record.next_in_bucket = e.unused_piece
    e.unused_piece = piece


@compiled()
def _keep(e: Engine, piece: int) -> None:
    """Put a piece that no request holds at the recent end of the ring."""
    anchor, record = piece_at(e, NO_PIECE), piece_at(e, piece)
    record.older = anchor.older
    record.newer = NO_PIECE
    piece_at(e, anchor.older).newer = piece
    anchor.older = piece
    e.cached_blocks += record.blocks


@compiled()
def _unlink(e: Engine, piece: int) -> None:
    """Take a piece out of the ring."""
    record = piece_at(e, piece)
    piece_at(e, record.older).newer = record.newer
    piece_at(e, record.newer).older = record.older
    e.cached_blocks -= record.blocks


@compiled()
def take_blocks(e: Engine, count: int) -> None:
    """Take `count` blocks, and evict those that have been kept longest as needed. The caller has checked that
    there are as many.
    """
    while e.free_blocks < count:
        oldest = piece_at(e, NO_PIECE).newer
        record = piece_at(e, oldest)
        missing = count - e.free_blocks
        if record.blocks > missing:  # of one request: the deepest leave first
            record.blocks -= missing
            e.cached_blocks -= missing
            e.free_blocks += missing
        else:
            e.free_blocks += record.blocks
            _unlink(e, oldest)
            _forget(e, oldest)
    e.free_blocks -= count
    used = e.total_blocks - e.free_blocks - e.cached_blocks
    totals_of(e)[0].peak_blocks = max(totals_of(e)[0].peak_blocks, used)


@compiled()
def _held_piece(e: Engine, r: int, index: int) -> int:
    """Return the piece that request `r` holds as its block `index`."""
    if index < request_at(e, r).named_blocks:
        return item(held_pieces_of(e), _held_index(e, r, index))
    piece = _oldest_copy(e, _key(e, r, index))
    while piece_at(e, piece).holders == 0 or piece_at(e, piece).key != _key(e, r, index):
        piece = piece_at(e, piece).next_in_bucket
    return piece


@compiled()
def release_blocks(e: Engine, r: int, returns: bool) -> None:
    """Give back all blocks of request `r` and what was reserved for it. Its full blocks stay in memory while
    no request needs the room. `returns`: the request comes back and will look for them.
    """
    q = request_at(e, r)
    held = q.capacity // e.block_tokens
    if e.prefix_caching:
        blocks = e.cache_block_tokens // e.block_tokens
        full = q.keyed_tokens // e.cache_block_tokens
        held -= full * blocks
        # From the last to the first: the deepest is evicted first, because no later request can match it
        # without all those before it.
        if returns:
            for index in range(full - 1, q.pieces - 1, -1):
                _keep(e, _new_piece(e, _key(e, r, index), blocks, 0))
        elif full > q.pieces:
            _keep(e, _new_piece(e, NO_KEY, (full - q.pieces) * blocks, 0))
        for index in range(q.pieces - 1, -1, -1):
            piece = _held_piece(e, r, index)
            piece_at(e, piece).holders -= 1
            if piece_at(e, piece).holders == 0:
                _keep(e, piece)
        q.pieces = 0
        q.keyed_tokens = 0
    e.free_blocks += held
    q.capacity = 0
    e.reserved_blocks -= q.reserved
    q.reserved = 0


@compiled()
def prefix_hit(e: Engine, r: int) -> tuple[int, int, int]:
    """Return what request `r` would find in memory: the tokens that it need not compute, the leading blocks
    that it would hold for them, and how many of these no request holds now (in KV blocks): they count as
    available.
    """
    q = request_at(e, r)
    if not e.prefix_caching or (q.named_blocks == 0 and q.preemptions == 0):
        return 0, 0, 0
    known_tokens, size = q.prompt + q.emitted, e.cache_block_tokens
    limit = known_tokens // size
    if q.preemptions == 0:  # its own blocks have never been in memory
        limit = min(limit, q.named_blocks)
    matched = 0
    while matched < limit:
        piece = _oldest_copy(e, _key(e, r, matched))
        if piece == NO_PIECE:
            break
        if matched < q.named_blocks:
            held_pieces_of(e)[_held_index(e, r, matched)] = piece
        matched += 1
    # At least one token is computed anew, because a step must have its logits.
    tokens = min(matched * size, (known_tokens - 1) // e.block_tokens * e.block_tokens)
    if tokens > 0 and e.loses_last_match:
        tokens -= e.block_tokens
    matched = (tokens + size - 1) // size
    unheld = 0
    for index in range(matched):
        unheld += piece_at(e, _matched_piece(e, r, index)).holders == 0
    return tokens, matched, unheld * (size // e.block_tokens)


@compiled(inline=True)
def _matched_piece(e: Engine, r: int, index: int) -> int:
    """Return the piece that `prefix_hit` has just matched to block `index` of request `r`."""
    if index < request_at(e, r).named_blocks:
        return item(held_pieces_of(e), _held_index(e, r, index))
    return _oldest_copy(e, _key(e, r, index))


@compiled()
def hold_matched(e: Engine, r: int, count: int) -> None:
    """Let request `r` hold its first `count` blocks, which `prefix_hit` has just matched."""
    q = request_at(e, r)
    for index in range(count):
        piece = _matched_piece(e, r, index)
        if piece_at(e, piece).holders == 0:
            _unlink(e, piece)
        piece_at(e, piece).holders += 1
    q.pieces = count
    q.keyed_tokens = q.capacity = count * e.cache_block_tokens


@compiled(inline=True)
def give_keys(e: Engine, r: int, tokens: int) -> None:
    """Give the full blocks of the first `tokens` tokens of request `r` their keys."""
    q = request_at(e, r)
    q.keyed_tokens = tokens
    if q.pieces < q.named_blocks:
        _name_blocks(e, r)


@compiled()
def _name_blocks(e: Engine, r: int) -> None:
    """Let other requests find the named blocks that the keyed tokens of request `r` fill."""
    q = request_at(e, r)
    full = min(q.keyed_tokens // e.cache_block_tokens, q.named_blocks)
    while q.pieces < full:
        piece = _new_piece(e, _key(e, r, q.pieces), e.cache_block_tokens // e.block_tokens, 1)
        held_pieces_of(e)[_held_index(e, r, q.pieces)] = piece
        q.pieces += 1

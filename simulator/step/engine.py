"""The record of one engine: its settings, its clock, its queues, and where its arrays are."""

from __future__ import annotations

import numpy as np

from simulator.step.settings import SETTING_FIELDS
from simulator.step.state import ARRAYS

ENGINE = np.dtype(
    [
        *SETTING_FIELDS,
        # What is derived from the settings
        ("max_nodes", "i8"),  # drafts verified for one request in one round, at most
        ("max_depth", "i8"),  # positions at which a draft can be accepted, at most
        ("max_passes", "i8"),  # columns of `pass_rows`
        ("dense_query_tokens", "i8"),  # each number of query tokens up to this one has a plane of prices
        ("graph_cap", "i8"),  # tokens of the largest CUDA graph
        # The requests
        ("binds_clients", "i8"),  # what follows a request returns to this engine: no router decides
        ("first_measured", "i8"),  # the request whose arrival opens the window of the rates
        ("prefix_block_tokens", "i8"),  # tokens of a block that `prefix_ids` names; 0: it names none
        ("cache_block_tokens", "i8"),  # tokens of a piece of the prefix cache
        # The stages of a step
        ("stage_count", "i8"),
        ("stages_queue", "i8"),  # a stage may find its resource occupied
        ("results_after", "i8"),  # the stage at whose end the tokens leave
        ("next_step_after", "i8"),  # the stage at whose end the next step may start
        # The clock
        ("now_ns", "i8"),  # when it last scheduled
        ("phase", "i8"),  # what it decides next: SCHEDULE … UPDATE
        ("due_ns", "i8"),  # and when
        ("slot", "i8"),  # which of the two plans runs, or starts next
        ("ahead", "i8"),  # entries of the other one, when it is scheduled
        ("next_step_ns", "i8"),  # when the step that runs lets the next one start
        ("in_flight_step", "i8"),  # number of the step that runs while the next one is scheduled
        ("in_flight_draft_length", "i8"),  # its K
        ("next_number", "i8"),
        # Queues
        ("running_count", "i8"),
        ("waiting_head", "i8"),
        ("waiting_count", "i8"),
        ("known_arrival_index", "i8"),
        ("followup_head", "i8"),
        ("followup_tail", "i8"),
        ("arrived_count", "i8"),
        ("entered_count", "i8"),  # of the arrived, how many have entered the front end
        ("parsed_count", "i8"),
        ("joined_count", "i8"),
        ("loop_share_ns", "i8"),  # work that the event loop has given to each request in it since time 0
        ("loop_carry_ns", "i8"),  # time that was too short to be divided among them
        ("loop_now_ns", "i8"),  # until when it is divided
        ("tokenizer_free_ns", "i8"),
        ("give_up_index", "i8"),
        ("quiet_until_ns", "i8"),  # until then nothing happens in the queues
        ("in_system", "i8"),
        # Memory
        ("free_blocks", "i8"),
        ("cached_blocks", "i8"),  # held by no request, kept for their contents
        ("piece_count", "i8"),  # pieces of the prefix cache that have been in use
        ("unused_piece", "i8"),  # the first of those that are free again; 0: none
        ("reserved_blocks", "i8"),  # what admission reserved for the running requests
        # Acceptance, the scalar part
        ("seed", "i8"),
        ("acceptance_kind", "i8"),
        ("match_by_request", "i8"),
        ("match_levels", "i8"),  # equally likely lengths of a match; 0: a match always brings K drafts
        ("bins", "i8"),  # of request effects
        ("positions", "i8"),  # columns of `survival_bits`
        ("effect_low", "f8"),
        ("effect_bins_per_unit", "f8"),
        ("drift_sd", "f8"),
        ("drift_correlation", "f8"),
        # Extents of the attention tables
        ("context_knots", "i8"),
        ("attention_plane", "i8"),  # batch knots × context knots
        ("context_cells", "i8"),
        # Where each array is, and how many elements it has
        *((f"{name}_at", "i8") for name in ARRAYS),
        *((f"{name}_len", "i8") for name in ARRAYS),
    ],
    align=True,
)

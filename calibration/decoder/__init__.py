"""A minimal Llama-type decoder in torch: its operators are timed, and the closed loop decodes with it."""

"""A lean Llama-type decoder in torch: the operators that are timed, and that the closed loop decodes with."""

"""What a pass costs: operators measured on a GPU, summed over a network, explained, compiled into tables."""

"""Distillation of drafters: text, shards of hidden states, losses, training loop, checkpoints."""

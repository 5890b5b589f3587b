"""Distillation of drafters: text, the target's hidden states in shards, losses, the loop, checkpoints."""

"""Drafters on real language models, and the target that verifies them. In torch, so it is imported late."""

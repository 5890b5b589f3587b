"""Drafters on real language models, and the target that checks them (written in torch; imported late)."""

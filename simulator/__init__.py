"""The model: what one engine step of an LLM serving engine costs and does, and the simulation of many."""

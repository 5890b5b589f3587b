"""The closed loop on a serving engine: vLLM is measured plainly, predicted, then measured."""

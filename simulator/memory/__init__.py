"""What fits on one GPU: weights, drafter, reserve, recurrent states and KV blocks."""

"""The closed loop: real plain and speculative decoding on a device, against a prediction from its profile."""

"""The closed loop: real plain and speculative decoding on a device, compared with a prediction from its
profile.
"""

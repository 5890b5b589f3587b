"""`tune`: a guide for one workload. Which drafter, how many drafts by load, which trees, up to which
temperature, and when to decode plainly, with the numbers that decide.

loads.py evaluates a variant by load, temperature.py applies measured curves, guide.py decides, markdown.py
writes the guide.
"""

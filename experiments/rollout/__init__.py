"""`rollout`: how to turn speculation on in stages, with thresholds that follow from the plan.

figures.py takes the thresholds from a plan, queries.py asks an engine's metrics for the same quantities,
stages.py makes the stages, markdown.py writes the document.
"""

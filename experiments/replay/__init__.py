"""`replay`: the simulator fitted to the user's own baseline, so that what-ifs start from what was measured.

baseline.py is one measured run without speculation, fit.py finds host times and reports what is left.
"""

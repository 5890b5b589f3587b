"""`advise`: from a launch line and whatever files there are to a verdict, causes, flags and next steps.

runs.py sorts files into runs, traffic.py takes the load from them, advise.py puts the answers together.
"""

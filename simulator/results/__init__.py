"""From the record of a run to an answer: metrics, estimates with intervals, verdict, result files."""

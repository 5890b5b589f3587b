"""From what a run left behind to an answer: metrics, estimates with their intervals, verdict, result files."""

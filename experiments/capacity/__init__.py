"""How many replicas a traffic needs within its SLO, with and without speculation, and what that costs."""

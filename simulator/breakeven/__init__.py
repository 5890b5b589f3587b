"""The acceptance that speculation needs to pay: closed forms and one root search on common random numbers."""

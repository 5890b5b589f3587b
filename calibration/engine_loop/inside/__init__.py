"""Scripts for the engine's own python. They import nothing of this project."""

"""The reader of words: turns what a source says in notes into the explicit fields of a published case."""

"""Which of the inputs that nobody knows exactly decide the answer: one at a time, and all together."""

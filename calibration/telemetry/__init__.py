"""What a serving engine or a benchmark client reported: files read, merged and checked."""

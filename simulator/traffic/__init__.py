"""The requests that all variants meet: arrivals, lengths, sessions, recorded traces."""

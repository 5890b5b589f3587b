"""The requests that all arms meet: arrivals, lengths, sessions, recorded traces."""

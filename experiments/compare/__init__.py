"""Two measured runs, without and with speculation: what changed, why, and what to change."""

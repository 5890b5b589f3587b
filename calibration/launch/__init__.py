"""Launch configurations of serving engines: read into scenarios, and written from them."""

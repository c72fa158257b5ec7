"""Orders of a customer, page by page."""

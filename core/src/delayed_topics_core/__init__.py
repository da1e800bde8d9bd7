"""The pure decisions of delayed topics: layout, routing, headers, windows, registry records."""

"""The pure decisions of delayed topics: layout, names of topics and headers, registry records, events, reasons."""

"""One controller a kind: woken with a key, it makes one pass over that resource."""

"""One controller for each kind: woken with a key, it makes one pass over that resource, and says how the pass ended.

What a pass should do is decided in `reconcile`, and a controller makes no call that a gateway does not offer.
"""

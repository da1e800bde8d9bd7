"""The relay: releases due records, hops the others."""

"""Calls of derived functions: variants, guards, tiers, and the transformations themselves."""

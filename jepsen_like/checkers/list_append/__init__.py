"""Transactions on lists, as Elle checks them: an order is inferred, and cycles are looked for."""

"""Transactions on lists, checked as Elle does: it infers an order, and looks for cycles."""

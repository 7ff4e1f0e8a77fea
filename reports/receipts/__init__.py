"""Receipts: signed statements about completed deletions, and the ledger they are appended to."""

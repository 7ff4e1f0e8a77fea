"""Receipts: signed statements about completed deletions, and the ledger they are appended to.

Bytes and mappings in, bytes out.  The order of use in a deletion: `statement.build_statement(IntentFacts)` ->
`envelope.sign_envelope` -> `ledger.Ledger.append`; then, when all is published and checked, the same with
`ReceiptFacts`, and `bundle.make_bundle` for the file that the requester keeps.
"""

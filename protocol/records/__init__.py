"""Record batches: their headers, their records, what a leader checks and sets when it appends them, and conversion for old clients."""

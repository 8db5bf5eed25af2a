"""The recorder: runs inside each rank, and keeps what it does in a file that outlives it."""

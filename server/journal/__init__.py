"""What a broker and its controller do, written to the broker's journal."""

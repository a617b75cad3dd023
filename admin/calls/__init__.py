"""What each call has: checked arguments, settings, a deadline, results and errors."""

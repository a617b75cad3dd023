"""A proxy for tests and programs, with and without asyncio."""

"""Spark sessions, their JVM, and their Python workers."""

"""Helpers for the machine: Java runtimes, class archives, the cache folder, file locks, atomic replacement of files."""

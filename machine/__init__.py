"""What the machine has for everybody: Java runtimes and archives of their classes, the cache folder, locks, files that are replaced."""

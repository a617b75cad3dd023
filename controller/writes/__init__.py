"""Writes of znodes that several procedures share: topics, configs, the end of reassignments and of throttles."""

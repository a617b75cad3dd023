"""What waits, draws or measures for the other packages: the clock, the pace of long work, holds at phases; value classes, blocking classes.

A caller passes another clock or other holds where it wants to. Nothing here knows Kafka.
"""

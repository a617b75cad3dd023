"""The broker process: listeners, dispatch of requests, handlers, and the code that connects the other packages.

Only this package imports uvloop.
"""

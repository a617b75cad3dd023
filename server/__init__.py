"""The broker process: listeners, dispatch of requests, handlers, and the parts that connect the other packages. Only this package imports
uvloop.
"""

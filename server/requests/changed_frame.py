"""A response that is a frame already."""


class ChangedFrame(bytes):
    """A whole frame that is sent as it is: faults changed its bytes."""

"""Shortcuts of the codec for messages that come again and again; what they give is what the codec gives."""

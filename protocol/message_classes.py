"""Empty at run time, when `messages` makes the classes on first use. Type checkers read them from `message_classes.pyi`."""

"""What can happen to a controller: the events, what caused each, their queue, what an error does to them, and who observes them."""

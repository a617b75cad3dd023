"""What can happen to a controller: the events, what caused each, their queue, and what an error does to them."""

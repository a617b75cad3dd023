"""The controller's event loop: elections of the controller, fail-over, and the tables of all events and of all rules."""

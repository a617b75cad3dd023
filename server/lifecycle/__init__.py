"""How a broker comes up and ends: its parts, made and connected in one place, and the table of steps with their undo."""

"""The journal: every frame that a broker receives or sends and everything that its controller decides, cheaply, as Arrow streams."""

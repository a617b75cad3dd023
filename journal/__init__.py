"""The journal: records every frame that a broker receives or sends, and every decision of its controller, as Arrow streams at low cost."""

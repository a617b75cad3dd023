"""Connections and channels from this broker to others, and the tap that observes frames."""

"""How a broker follows leaders: fetchers, and the ISR changes of the partitions that it leads."""

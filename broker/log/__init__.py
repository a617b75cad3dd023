"""The log of one replica: segments of record batches, leader epochs, states of producers, retention; and the manager of a broker's logs."""

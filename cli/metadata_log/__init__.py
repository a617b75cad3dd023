"""`klamm metadata-log`: shows the log that has a record for each change which the active controller has committed."""

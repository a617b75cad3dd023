"""`klamm metadata-log`: shows the metadata log of the active controller, which has a record for each committed change."""

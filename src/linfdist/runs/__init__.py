"""What commands leave behind: the folder of a run, one row per image, records of results."""

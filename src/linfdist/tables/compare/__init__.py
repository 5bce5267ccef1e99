"""All methods side by side: the same images, cores and time for each, and one row of results."""

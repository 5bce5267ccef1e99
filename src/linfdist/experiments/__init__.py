"""Programs on top of all the rest, one for each verb that measures: nothing in the package needs them."""

"""The paper's tables run again, and all methods side by side in the same time."""

"""What only the repository needs, and no wheel holds."""

"""What leaves the system."""

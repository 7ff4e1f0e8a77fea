"""What runs: settings, steps, orchestration, command line."""

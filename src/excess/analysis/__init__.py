"""What a command does, as a library."""

"""What every layer may use: argument checks, errors, files, threads, progress and random numbers."""

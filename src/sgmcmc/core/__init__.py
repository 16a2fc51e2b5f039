"""What every other room stands on: words, trees, errors, scalar checks, bars, files."""

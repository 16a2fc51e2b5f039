"""`sample`, which has nothing to tune: accuracy against time, and growth with the number of rows."""

"""Ships the definitions of the caller's program to other processes, by value, with the job that needs them."""

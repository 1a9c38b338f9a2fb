"""What stands for pandas' Series and DataFrames while a function is traced, and their methods."""

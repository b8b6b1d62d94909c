"""What is learned: which data, which model, which score, how a result is printed."""

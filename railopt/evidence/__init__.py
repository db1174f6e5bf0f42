"""What shows a bound: bracket, bounds, certificate."""

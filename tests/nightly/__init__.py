"""The long tests: slow tests, random compositions, fuzzing and the model zoo, by one command that can be resumed."""

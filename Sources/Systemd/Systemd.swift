// Built in a later commit.

"""The report: a detection that people can look at, question and trust."""
